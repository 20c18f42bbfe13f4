{{/*
For an application's own chart, which has this one as a dependency, with deployment.enabled = false: then it makes the ConfigMap only. Each takes (dict "root" $ "values" (index .Values "outbox-relay")).

    initContainers:
      {{- include "outbox-relay.sidecar" (dict "root" $ "values" (index .Values "outbox-relay")) | nindent 6 }}
    volumes:
      {{- include "outbox-relay.sidecar.volumes" (dict "root" $ "values" (index .Values "outbox-relay")) | nindent 6 }}

A native sidecar is an init container that stays: it starts before the application and ends after it.
*/}}
{{- define "outbox-relay.sidecar" -}}
- restartPolicy: Always
  {{- include "outbox-relay.sidecar.body" . | nindent 2 }}
{{- end -}}

{{/* The same among `containers`, for clusters before 1.29, or where the relay may end with the application. */}}
{{- define "outbox-relay.sidecar.plain" -}}
- {{- include "outbox-relay.sidecar.body" . | nindent 2 }}
{{- end -}}

{{/*
The container of a Job whose own work is done in `initContainers`: it delivers what they have written, and with it the Job ends. Beside the
work it would find nothing to do yet, and end before it.
*/}}
{{- define "outbox-relay.sidecar.untilEmpty" -}}
- {{- include "outbox-relay.sidecar.body" (merge (dict "untilEmpty" true) .) | nindent 2 }}
{{- end -}}

{{- define "outbox-relay.sidecar.body" -}}
{{- include "outbox-relay.container" (dict "values" .values "version" (index .root.Subcharts "outbox-relay").Chart.AppVersion "sidecar" true "untilEmpty" .untilEmpty) }}
{{- end -}}

{{- define "outbox-relay.sidecar.volumes" -}}
{{- include "outbox-relay.volumes" (dict "values" .values "config" (include "outbox-relay.name" .root)) }}
{{- end -}}
