"""Renders the charts with Helm, and checks what comes out: against the schemas of Kubernetes, and for what each pod must have.

Arguments: the program of Helm, the directory of the charts, a directory to work in, and what to do: `values` or `versions`. The first writes
relay.toml and the containers as they were rendered there.
"""

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import yaml

HELM, CHARTS, HERE, PART = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
# Those that the chart is for: each is tried with what is rendered by default, with all of it, and for jobs and sidecars.
VERSIONS = ["1.29", "1.30", "1.31", "1.32", "1.33", "1.34", "1.35"]
NEWEST = VERSIONS[-1:]
# Schemas of their own, which the validator has not.
FOREIGN = {"PodMonitor", "PrometheusRule", "ScaledObject"}
CONFIG = {
    "relay": {"grace": "20s", "batch": 100, "memory": "32MiB"},
    "endpoints": [{"name": "billing", "url": "http://billing/{topic}?v=1.0", "concurrency": 32, "retry": {"factor": 1.5, "max_attempts": 5}, "statuses": {"404": "dead"}}],
    "routes": [{"topic": "order.*", "to": ["billing"], "order": "key"}],
}
BASE = {"database": {"existingSecret": "db"}, "config": CONFIG}


def helm(*arguments):
    return subprocess.run([HELM, *arguments], capture_output=True, text=True)


def merged(one, other):
    return {**one, **{key: merged(one[key], value) if isinstance(value, dict) and isinstance(one.get(key), dict) and key != "config" else value for key, value in other.items()}}


def render(chart, values, version=VERSIONS[-1]):
    """The documents, and what was said where there are none."""
    path = HERE / "values.json"
    path.write_text(json.dumps(values))
    done = helm("template", "shop", str(chart), "--namespace", "here", "--values", str(path), "--kube-version", version + ".0")
    if done.returncode:
        return None, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document], ""


def check(documents, versions=NEWEST):
    """What holds for everything that is rendered."""
    names = set()
    for document in documents:
        kind, name = document["kind"], document["metadata"]["name"]
        assert (kind, name) not in names, f"{kind} {name} comes twice"
        names.add((kind, name))
        if kind not in FOREIGN:
            for version in versions:
                kubernetes_validate.validate(document, version, strict=True)
        if kind == "ConfigMap":
            assert "postgres://" not in json.dumps(document), "a ConfigMap holds no secret"
        if kind in ("Deployment", "Job"):
            pod(document["spec"]["template"]["spec"])
        if kind == "CronJob":
            pod(document["spec"]["jobTemplate"]["spec"]["template"]["spec"])
        if kind == "Deployment":
            selector = document["spec"]["selector"]["matchLabels"]
            labels = document["spec"]["template"]["metadata"]["labels"]
            assert selector.items() <= labels.items(), "the selector finds its pods"


def pod(spec):
    volumes = {volume["name"] for volume in spec.get("volumes", [])}
    assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["fsGroup"] == 65532
    for container in spec.get("initContainers", []) + spec["containers"]:
        if not container["image"].split("@")[0].split(":")[0].endswith("outbox-relay"):
            continue
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] and context["runAsNonRoot"] and not context["allowPrivilegeEscalation"]
        assert context["capabilities"] == {"drop": ["ALL"]} and context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["resources"]["limits"]["memory"] and container["resources"]["requests"]["cpu"]
        mounts = container.get("volumeMounts", [])
        assert {mount["name"] for mount in mounts} <= volumes and all(mount["readOnly"] for mount in mounts)
        paths = [mount["mountPath"] for mount in mounts]
        for variable in container["env"]:
            value = variable.get("value", "")
            assert not value.startswith("/") or any(value.startswith(path + "/") for path in paths), f"{value} is mounted"
        assert not any(variable["name"].endswith("URL") and "value" in variable for variable in container["env"]), "no URL as plain text"


def of(documents, kind):
    return next((document for document in documents if document["kind"] == kind), None)


def alone():
    chart = CHARTS / "outbox-relay"
    path = HERE / "values.json"
    path.write_text(json.dumps(BASE))
    done = helm("lint", "--strict", str(chart), "--values", str(path))
    assert done.returncode == 0, done.stdout + done.stderr

    switches = [
        {"migrate": {"enabled": True, "existingSecret": "owner"}},
        {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}, "dashboard": {"enabled": True}},
        {"networkPolicy": {"enabled": True, "egress": [{"ports": [{"port": 443}]}]}, "podDisruptionBudget": {"enabled": False}},
        {"http": {"tokensSecret": "tokens", "public": True, "maxDueAge": "10m"}, "secretMounts": [{"secret": "hook", "path": "/run/secrets/hook"}]},
        {"image": {"digest": "sha256:" + "0" * 64, "pullSecrets": ["pull"]}, "database": {"existingSecret": "db", "caConfigMap": "ca"}},
        {"serviceAccount": {"create": False}, "topologySpreadConstraints": [], "config": "[[endpoints]]\nname = \"a\"\n"},
        {"cronJob": {"enabled": True, "timeZone": "Europe/Berlin"}, "podLabels": {"team": "shop"}},
    ]
    scalings = [{}, {"autoscaling": {"enabled": True}}, {"keda": {"enabled": True}}]
    rendered = 0
    pairs = list(itertools.combinations([{}] + switches, 2))
    for scaling, (one, other) in [(scalings[n % 3], pair) for n, pair in enumerate(pairs)]:
        documents, error = render(chart, merged(merged(merged(BASE, scaling), one), other))
        assert documents, error
        check(documents)
        deployment = of(documents, "Deployment")
        assert ("replicas" in deployment["spec"]) == (not scaling), "who scales says how many"
        rendered += 1

    documents, _ = render(chart, merged(BASE, switches[0]))
    toml = of(documents, "ConfigMap")["data"]["relay.toml"]
    assert "concurrency = 32\n" in toml and "factor = 1.5\n" in toml and "v=1.0" in toml, toml
    (HERE / "relay.toml").write_text(toml)
    container = of(documents, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    (HERE / "container.json").write_text(json.dumps(container))
    job = of(documents, "Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    documents, _ = render(chart, merged(BASE, switches[1]))
    rules = of(documents, "PrometheusRule")["spec"]
    assert rules == yaml.safe_load((chart / "files/alerts.yaml").read_text()), "the rules are those that are tested"
    dashboard = next(one for one in documents if one["metadata"]["name"].endswith("-dashboard"))
    assert json.loads(dashboard["data"]["outbox-relay.json"])["uid"] == "outbox-relay"

    # What makes new pods, and what a relay reads again by itself.
    def checksum(config):
        documents, error = render(chart, merged(BASE, {"config": config}))
        assert documents, error
        return of(documents, "Deployment")["spec"]["template"]["metadata"]["annotations"]["checksum/restart"]

    before = checksum(CONFIG)
    assert checksum({**CONFIG, "endpoints": []}) == before
    assert checksum({**CONFIG, "relay": {"lease": "5s"}}) != before
    assert checksum({**CONFIG, "http": {"sample_every": "5s"}}) != before

    for values, part in [
        ({"replica": 2}, "additional properties 'replica' not allowed"),
        ({"replicas": "two"}, "at '/replicas': got string, want integer"),
        ({"image": {"pullPolicy": "Sometimes"}}, "at '/image/pullPolicy'"),
        ({"http": {"port": 99999}}, "at '/http/port'"),
        ({"database": {"existingSecret": ""}}, "database.existingSecret: the name of the Secret with the database's URL"),
        ({"http": {"tokensSecret": "tokens"}}, "put something that speaks TLS before it and say http.public=true"),
        ({"config": {**CONFIG, "database": {"url": "postgres://u:p@h/d"}}}, "at '/config': 'not' failed"),
        ({"terminationGracePeriodSeconds": 20}, "requests on their way may take relay.grace, 20 s"),
        ({"config": {**CONFIG, "relay": {"grace": "1m30s"}}}, "may take relay.grace, 90 s"),
        ({"autoscaling": {"enabled": True}, "keda": {"enabled": True}}, "one of the two"),
        ({"cronJob": {"enabled": True, "schedule": "every five minutes"}}, "at '/cronJob/schedule'"),
        ({"cronJob": {"enabled": True}, "deployment": {"enabled": False}, "terminationGracePeriodSeconds": 20}, "may take relay.grace, 20 s"),
    ]:
        documents, error = render(chart, merged(BASE, values))
        assert documents is None and part in error, f"{values}: {part}\n{error}"
    return rendered


def matrix():
    """Each version takes what is rendered for it, by default and with all that can be had at once."""
    chart = CHARTS / "outbox-relay"
    everything = {
        **{name: {"enabled": True} for name in ["podMonitor", "prometheusRule", "dashboard", "keda", "cronJob"]},
        "migrate": {"enabled": True, "existingSecret": "owner"},
        "networkPolicy": {"enabled": True, "ingress": [{"podSelector": {}}], "egress": [{"ports": [{"port": 443}]}]},
        "http": {"tokensSecret": "tokens", "public": True, "maxDueAge": "10m"},
        "secretMounts": [{"secret": "hook", "path": "/run/secrets/hook"}],
        "image": {"pullSecrets": ["pull"]},
        "database": {"caConfigMap": "ca"},
        "serviceAccount": {"annotations": {"a": "b"}},
        "env": [{"name": "OUTBOX__RELAY__LEASE", "value": "5s"}],
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "shop"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}]}},
        "priorityClassName": "high",
    }
    scaled = {**everything, "keda": {"enabled": False}, "autoscaling": {"enabled": True}}
    for version in VERSIONS:
        for values, kinds in [(BASE, 4), (merged(BASE, everything), 10), (merged(BASE, scaled), 10)]:
            documents, error = render(chart, values, version)
            assert documents, error
            assert len({document["kind"] for document in documents}) == kinds, [document["kind"] for document in documents]
            check(documents, [version])
    documents, error = render(chart, BASE, "1.28")
    assert documents is None and "1.28" in error, error
    return 3 * len(VERSIONS)


def cron_job():
    documents, error = render(CHARTS / "outbox-relay", merged(BASE, {"deployment": {"enabled": False}, "cronJob": {"enabled": True}}))
    assert documents, error
    check(documents)
    assert sorted(document["kind"] for document in documents) == ["ConfigMap", "CronJob", "ServiceAccount"]
    job = of(documents, "CronJob")["spec"]["jobTemplate"]["spec"]
    [relay] = job["template"]["spec"]["containers"]
    assert relay["args"][-1] == "--until-empty" and "readinessProbe" not in relay
    assert job["podFailurePolicy"]["rules"][0]["onExitCodes"]["containerName"] == relay["name"]
    # Beside relays that stay, its pods are none of theirs: no budget, no count and no selector means them.
    documents, _ = render(CHARTS / "outbox-relay", merged(BASE, {"cronJob": {"enabled": True}}))
    labels = of(documents, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    for kind in ("Deployment", "PodDisruptionBudget"):
        assert not of(documents, kind)["spec"]["selector"]["matchLabels"].items() <= labels.items(), kind
    (HERE / "job.json").write_text(json.dumps(relay))


def flat(values, path=""):
    """Each value that has none below it, by its path."""
    if isinstance(values, dict) and values:
        return {name: value for key, below in values.items() for name, value in flat(below, f"{path}.{key}").items()}
    return {path[1:]: values}


def values_table():
    """The README has each value of the chart with its default, and is what scripts/chart-values makes of it."""
    done = subprocess.run([CHARTS.parent / "scripts/chart-values", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    chart = CHARTS / "outbox-relay"
    table = [line.split(" | ") for line in (chart / "README.md").read_text().splitlines() if line.startswith("| `")]
    told = {cells[0].strip("|` "): yaml.safe_load(cells[1].strip("`")) for cells in table if cells[1].startswith("`")}
    there = flat(yaml.safe_load((chart / "values.yaml").read_text()))
    assert {name: told.get(name) for name in there} == there


def sidecar():
    chart = HERE / "example-app"
    shutil.copytree(CHARTS / "example-app", chart)
    shutil.copytree(CHARTS / "outbox-relay", chart / "charts" / "outbox-relay")
    documents, error = render(chart, {})
    assert documents, error
    check(documents)
    assert [document["kind"] for document in documents] == ["ConfigMap", "Deployment", "Job"]
    for version in VERSIONS:
        rendered, error = render(chart, {}, version)
        assert rendered == documents, error
        check(rendered, [version])
    job = of(documents, "Job")["spec"]["template"]["spec"]
    [work], [relay] = job["initContainers"], job["containers"]
    assert work["name"] == "report" and relay["args"][-1] == "--until-empty" and "restartPolicy" not in relay
    assert "startupProbe" not in relay and "readinessProbe" not in relay
    spec = of(documents, "Deployment")["spec"]["template"]["spec"]
    [relay] = spec["initContainers"]
    assert relay["restartPolicy"] == "Always" and "startupProbe" not in relay and "readinessProbe" not in relay
    config = of(documents, "ConfigMap")["metadata"]["name"]
    assert {"name": "outbox-relay-config", "configMap": {"name": config}} in spec["volumes"]
    assert spec["containers"][0]["name"] == "app" and relay["image"] == "outbox-relay:0.1.0"

    template = chart / "templates" / "deployment.yaml"
    template.write_text(template.read_text().replace("initContainers", "containers").replace("outbox-relay.sidecar\"", "outbox-relay.sidecar.plain\"").replace("      containers:\n        - name: app", "        - name: app"))
    documents, error = render(chart, {})
    assert documents, error
    check(documents)
    names = [one["name"] for one in of(documents, "Deployment")["spec"]["template"]["spec"]["containers"]]
    assert names == ["outbox-relay", "app"], names


if PART == "values":
    print(alone(), "renderings")
    cron_job()
    values_table()
else:
    print(matrix(), "renderings")
    sidecar()
