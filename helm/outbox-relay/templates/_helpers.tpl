{{- define "outbox-relay.name" -}}
{{- $name := .Release.Name -}}
{{- /* Also called by a chart that has this one as a dependency: its own name must play no part. */ -}}
{{- if not (contains "outbox-relay" $name) }}{{ $name = printf "%s-outbox-relay" $name }}{{ end -}}
{{- $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "outbox-relay.selector" -}}
app.kubernetes.io/name: outbox-relay
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "outbox-relay.labels" -}}
{{ include "outbox-relay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "outbox-relay.serviceAccount" -}}
{{- if .Values.serviceAccount.name }}{{ .Values.serviceAccount.name }}{{ else if .Values.serviceAccount.create }}{{ include "outbox-relay.name" . }}{{ else }}default{{ end -}}
{{- end -}}

{{- define "outbox-relay.image" -}}
{{- $image := .image -}}
{{- if $image.digest }}{{ printf "%s@%s" $image.repository $image.digest }}{{ else }}{{ printf "%s:%s" $image.repository (default .version $image.tag) }}{{ end -}}
{{- end -}}

{{/* relay.toml. Helm reads each number as one with a fraction, and writes 64 as 64.0: whole ones lose it again. */}}
{{- define "outbox-relay.toml" -}}
{{- if kindIs "string" .config -}}
{{ .config }}
{{- else -}}
{{ regexReplaceAll "(?m)(= -?[0-9]+)\\.0$" (toToml .config) "${1}" }}
{{- end -}}
{{- end -}}

{{/* How long a drain may take, in whole seconds: relay.grace. */}}
{{- define "outbox-relay.grace" -}}
{{- $grace := "25s" -}}
{{- if kindIs "map" .config -}}
{{- with .config.relay }}{{ with .grace }}{{ $grace = . }}{{ end }}{{ end -}}
{{- end -}}
{{- $seconds := 0 -}}
{{- range regexFindAll "[0-9]+(ms|[smh])" (toString $grace) -1 -}}
{{- $n := regexFind "[0-9]+" . | int -}}
{{- if hasSuffix "ms" . }}{{ $seconds = add $seconds (div $n 1000) }}
{{- else if hasSuffix "s" . }}{{ $seconds = add $seconds $n }}
{{- else if hasSuffix "m" . }}{{ $seconds = add $seconds (mul $n 60) }}
{{- else }}{{ $seconds = add $seconds (mul $n 3600) }}{{ end -}}
{{- end -}}
{{- $seconds -}}
{{- end -}}

{{- define "outbox-relay.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/*
The container, alone or beside an application: `values` as this chart has them, `version` of the image, `sidecar`: the application must
neither wait for it at its start nor be taken out of service by it, so it has the one probe that only ends in a restart of its own;
`untilEmpty`: it ends when nothing is due, and nobody waits for it or asks it for anything meanwhile.
*/}}
{{- define "outbox-relay.container" -}}
{{- $v := .values -}}
name: outbox-relay
image: {{ include "outbox-relay.image" (dict "image" $v.image "version" .version) | quote }}
imagePullPolicy: {{ $v.image.pullPolicy }}
args: [run, --config, /etc/outbox-relay/relay.toml{{ if .untilEmpty }}, --until-empty{{ end }}]
env:
  - name: OUTBOX__RELAY__NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  - name: OUTBOX__DATABASE__URL_FILE
    value: /run/secrets/outbox-relay/database/{{ $v.database.key }}
  {{- if $v.database.caConfigMap }}
  - name: OUTBOX__DATABASE__CA_FILE
    value: /run/secrets/outbox-relay/ca/{{ $v.database.caKey }}
  {{- end }}
  - name: OUTBOX__HTTP__LISTEN
    value: "[::]:{{ $v.http.port }}"
  {{- if $v.http.maxDueAge }}
  - name: OUTBOX__HTTP__MAX_DUE_AGE
    value: {{ $v.http.maxDueAge | quote }}
  {{- end }}
  {{- if $v.http.tokensSecret }}
  {{- if not $v.http.public }}
  {{- fail "http.tokensSecret: the API would be at the pod's address in plain HTTP, tokens and payloads too: put something that speaks TLS before it and say http.public=true" }}
  {{- end }}
  - name: OUTBOX__HTTP__PUBLIC
    value: "true"
  - name: OUTBOX__HTTP__OPERATORS_FILE
    value: /run/secrets/outbox-relay/tokens/operators
  - name: OUTBOX__HTTP__READERS_FILE
    value: /run/secrets/outbox-relay/tokens/readers
  {{- end }}
  # Large buffers go back to the system as soon as they are free.
  - name: MALLOC_MMAP_THRESHOLD_
    value: "131072"
  {{- with $v.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - name: outbox-http
    containerPort: {{ $v.http.port }}
livenessProbe:
  httpGet: {path: /livez, port: outbox-http}
  periodSeconds: 10
  failureThreshold: 6
{{- if not (or .sidecar .untilEmpty) }}
startupProbe:
  httpGet: {path: /startupz, port: outbox-http}
  periodSeconds: 2
  # A database that is not there yet: half an hour.
  failureThreshold: 900
readinessProbe:
  httpGet: {path: /readyz, port: outbox-http}
  periodSeconds: 5
  failureThreshold: 2
{{- end }}
securityContext:
  {{- include "outbox-relay.securityContext" . | nindent 2 }}
resources:
  {{- toYaml $v.resources | nindent 2 }}
volumeMounts:
  - name: outbox-relay-config
    mountPath: /etc/outbox-relay
    readOnly: true
  - name: outbox-relay-database
    mountPath: /run/secrets/outbox-relay/database
    readOnly: true
  {{- if $v.database.caConfigMap }}
  - name: outbox-relay-ca
    mountPath: /run/secrets/outbox-relay/ca
    readOnly: true
  {{- end }}
  {{- if $v.http.tokensSecret }}
  - name: outbox-relay-tokens
    mountPath: /run/secrets/outbox-relay/tokens
    readOnly: true
  {{- end }}
  {{- range $n, $mount := $v.secretMounts }}
  - name: outbox-relay-secret-{{ $n }}
    mountPath: {{ $mount.path | quote }}
    readOnly: true
  {{- end }}
{{- end -}}

{{/* The pod, of this chart: `root`, and `untilEmpty` as above. */}}
{{- define "outbox-relay.pod" -}}
{{- $v := .root.Values -}}
{{- $grace := include "outbox-relay.grace" (dict "config" $v.config) | int -}}
{{- if le (int $v.terminationGracePeriodSeconds) $grace -}}
{{- fail (printf "terminationGracePeriodSeconds: %d, and requests on their way may take relay.grace, %d s, to end: more than that, or SIGKILL comes first" (int $v.terminationGracePeriodSeconds) $grace) -}}
{{- end -}}
serviceAccountName: {{ include "outbox-relay.serviceAccount" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: {{ $v.terminationGracePeriodSeconds }}
{{- with $v.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $v.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
containers:
  - {{- include "outbox-relay.container" (dict "values" $v "version" .root.Chart.AppVersion "untilEmpty" .untilEmpty) | nindent 4 }}
volumes:
  {{- include "outbox-relay.volumes" (dict "values" $v "config" (include "outbox-relay.name" .root)) | nindent 2 }}
{{- with $v.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "outbox-relay.volumes" -}}
{{- $v := .values -}}
- name: outbox-relay-config
  configMap:
    name: {{ .config }}
- name: outbox-relay-database
  secret:
    secretName: {{ required "database.existingSecret: the name of the Secret with the database's URL" $v.database.existingSecret }}
{{- if $v.database.caConfigMap }}
- name: outbox-relay-ca
  configMap:
    name: {{ $v.database.caConfigMap }}
{{- end }}
{{- if $v.http.tokensSecret }}
- name: outbox-relay-tokens
  secret:
    secretName: {{ $v.http.tokensSecret }}
{{- end }}
{{- range $n, $mount := $v.secretMounts }}
- name: outbox-relay-secret-{{ $n }}
  secret:
    secretName: {{ $mount.secret }}
{{- end }}
{{- end -}}
