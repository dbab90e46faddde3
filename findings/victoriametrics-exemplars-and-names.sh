#!/bin/bash
# VictoriaMetrics 1.79.5 stores the exemplar of a counter in place of the counter, under a name that has the value in it.
#
# Expected: of "hits_total 3.0 # {trace_id="a1"} 3.0" (openmetrics.io, exemplars) it stores 3 for hits_total, and leaves out the exemplar
# or keeps it apart.
# Instead: if the counter has no labels, the exemplar's braces are taken for the counter's. The value of the exemplar is stored for a
# series "hits_total 3.0 #" with its labels, and each further value of the counter makes a further series. hits_total does not exist.
# There is no error. With labels the line is read as it should be.
# Affects: OpenMetrics pages that are pushed to VictoriaMetrics, or that are served whatever the Accept field says (it asks for the older
# text format): dashboards are empty, alerts stay silent, and the number of series grows with every request that is counted.
set -eu
folder=$(mktemp -d)
cd "$folder"
process=
trap '[ -z "$process" ] || { kill "$process"; wait "$process" || true; }; rm -rf "$folder"' EXIT

apt-get -qq -o APT::Sandbox::User=root download victoria-metrics=1.79.5+ds1-2+b5 libzstd1=1.5.4+dfsg2-5+deb12u1
for package in ./*.deb; do dpkg -x "$package" .; done
libraries=$(dirname "$(find "$folder" -name libzstd.so.1)")
echo "victoria-metrics $(dpkg -f victoria-metrics_*.deb Version)"
python3 -m venv own
own/bin/pip -q --disable-pip-version-check install prometheus-client==0.26.0

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
LD_LIBRARY_PATH=$libraries usr/bin/victoria-metrics -storageDataPath="$folder/data" -httpListenAddr="127.0.0.1:$port" \
    -memory.allowedBytes=64MB -loggerLevel=WARN 2> log &
process=$!
for _ in $(seq 100); do curl -sf -o answer "http://127.0.0.1:$port/health" && break; sleep 0.1; done

# The pages of a program that counts three times, as Prometheus's own library writes them.
cat > pages.py <<'END'
from prometheus_client import CollectorRegistry, Counter, disable_created_metrics
from prometheus_client.openmetrics.exposition import generate_latest

disable_created_metrics()
registry = CollectorRegistry()
plain = Counter("hits", "without labels", registry=registry)
labelled = Counter("labelled_hits", "with a label", ["path"], registry=registry).labels("/")
for step, trace in enumerate(["a1", "b2", "c3"], 1):
    for counter in (plain, labelled):
        counter.inc(3, exemplar={"trace_id": trace})
    with open(f"page{step}", "wb") as page:
        page.write(generate_latest(registry))
END
own/bin/python pages.py
cat page1
for step in 1 2 3; do curl -sSf --data-binary "@page$step" "http://127.0.0.1:$port/api/v1/import/prometheus"; sleep 0.1; done

cat > expected <<'END'
hits_total 3.0 # {'trace_id': 'a1'} [3]
hits_total 6.0 # {'trace_id': 'b2'} [3]
hits_total 9.0 # {'trace_id': 'c3'} [3]
labelled_hits_total {'path': '/'} [3, 6, 9]
END
cat > stored.py <<'END'
import json
import sys

for line in sorted(sys.stdin):
    series = json.loads(line)
    print(series["metric"].pop("__name__"), series["metric"], series["values"])
END
# What was sent can be seen a moment later.
for _ in $(seq 100); do
    curl -sf "http://127.0.0.1:$port/internal/force_flush"
    curl -sf "http://127.0.0.1:$port/api/v1/export" -d 'match[]={__name__!=""}' | python3 stored.py > stored
    if cmp -s stored expected; then break; fi
    sleep 0.1
done
echo "name, labels and values of what is stored:"
cat stored
diff expected stored
if grep -i 'error\|cannot' log; then exit 1; fi
