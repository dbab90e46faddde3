"""The files for Prometheus and Grafana are well formed, and the metrics that they use exist."""
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from access import bearer_settings
from certificates import make_certificate
from issuer import Issuer
from server_process import run, until
from test_metrics import ADMINISTRATION, metrics

DEPLOY = Path(__file__).parents[2] / "deploy"
FIXTURES = Path(__file__).parents[1] / "Fixtures"
CASES = {"cases.yaml": FIXTURES / "alerts.yaml", "slow-cases.yaml": FIXTURES / "slow-alerts.yaml"}
BOARD = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
RULES = [
    rule for group in yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]]
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]] + [rule["expr"] for rule in RULES]
SELECTOR = re.compile(r"\b((?:token_cache|process)_[a-z_]+)(?:\{([^}]*)\})?")
# Metrics of a store on other machines; test_postgres_operators.py has the tests about them.
REMOTE = "token_cache_database_"
# Prometheus adds these labels and series itself.
TARGET_LABELS = {"job", "instance"}


@pytest.fixture(name="promtool")
def promtool_on_copies(tmp_path):
    """Runs promtool in a folder that contains the files."""
    if not shutil.which("promtool"):
        pytest.skip("there is no promtool")
    for path in (DEPLOY / "prometheus").glob("*.yaml"):
        shutil.copy(path, tmp_path)
    for name, cases in CASES.items():
        shutil.copy(cases, tmp_path / name)

    def run(*arguments):
        done = subprocess.run(
            ["promtool", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_prometheus_takes_the_rules_and_the_configuration(promtool):
    promtool("check", "rules", "--lint=duplicate-rules", "--lint-fatal", "alerts.yaml")
    promtool("check", "config", "--lint=duplicate-rules", "--lint-fatal", "prometheus.yaml")


def test_alerts_fire_when_they_should(promtool):
    promtool("test", "rules", *CASES)


def test_prometheus_can_read_every_query_of_the_dashboard(promtool, tmp_path):
    queries = [
        expression.replace("$__rate_interval", "1m") for panel in PANELS
        for expression in (target["expr"] for target in panel["targets"])]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "queries.yaml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(queries)} rules found" in promtool("check", "rules", "queries.yaml")


def test_the_dashboard_shows_errors_while_there_is_but_one_kind_of_them(promtool, tmp_path):
    """Statuses other than 200 have no samples until they occur."""
    panel = next(panel for panel in PANELS if panel["title"] == "Server errors")
    query = panel["targets"][0]["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
    (tmp_path / "queries.yaml").write_text(json.dumps(
        {"groups": [{"name": "dashboard", "rules": [{"record": "query", "expr": query}]}]}))
    for status, code, share in (("200", "50001", 0.25), ("503", "50300", 0.25), ("404", "40400", 0)):
        counts = {("200", "none"): "0+30x10", ("200", "50001"): "0+0x10", (status, code): "0+10x10"}
        series = [
            {"series": f'token_cache_requests_total{{status="{status}",code="{code}",instance="a"}}', "values": values}
            for (status, code), values in counts.items()]
        (tmp_path / "shares.yaml").write_text(json.dumps({
            "rule_files": ["queries.yaml"], "evaluation_interval": "1m",
            "tests": [{"interval": "15s", "input_series": series, "promql_expr_test": [
                {"expr": "query", "eval_time": "2m", "exp_samples": [{"labels": "query", "value": share}]}]}]}))
        promtool("test", "rules", "shares.yaml")


def test_every_metric_and_label_that_is_asked_for_exists(serve, tmp_path):
    chain, key = make_certificate(tmp_path)
    server = serve({**ADMINISTRATION, "listen": "https://127.0.0.1:0", "tls": {"certificate": chain, "private_key": key}})
    # Some metrics are there after a backup only, and some in one mode of access.
    assert run("backup", tmp_path / "tokens.db", "--data-directory", server.data).returncode == 0
    users = serve({**ADMINISTRATION, **bearer_settings(tmp_path / "jwks.json", Issuer())})
    check_uses([*metrics(server), *metrics(users)], lambda name: not name.startswith(REMOTE))


def check_uses(lines, concerns):
    """Whether each metric that is asked for is in the lines, and each that is there is asked for, of those with such names."""
    samples = {}
    for sample in lines:
        name, _, labels = sample.partition("{")
        if concerns(name):
            samples.setdefault(name, []).append(dict(re.findall(r'([a-z]+)="([^"]*)"', labels)))
    asked = [
        (name, selector) for expression in EXPRESSIONS for name, selector in SELECTOR.findall(expression)
        if concerns(name)]
    assert len(asked) > 10
    for name, selector in asked:
        assert name in samples, f"there is no {name}"
        for label, operator, value in re.findall(r'([a-z_]+)(=~?)"([^"]*)"', selector):
            # Statuses other than 200 have no samples until they occur.
            if label in TARGET_LABELS or label == "status":
                continue
            values = {labels.get(label) for labels in samples[name]}
            wanted = value.split("|") if operator == "=~" else [value]
            assert set(wanted) <= values, f"{name} has no {label} {wanted}"
    shown = {name for name, _ in asked} | {"process_virtual_memory_bytes", "token_cache_build_info"}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in samples if name not in shown}
    forgotten = families - {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    assert not forgotten, "the dashboard or the alerts have a use for every metric"


def test_every_alert_says_what_is_wrong_and_what_to_do():
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "description"} and len(rule["annotations"]["description"]) > 60
        assert "$labels.instance" in rule["annotations"]["summary"]


def test_the_dashboard_can_be_imported_anywhere():
    variables = {variable["name"]: variable for variable in BOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource" and variables["datasource"]["query"] == "prometheus"
    identifiers = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(identifiers)) == len(identifiers) and BOARD["schemaVersion"] >= 36
    for panel in PANELS:
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)
        for target in panel["targets"]:
            assert set(re.findall(r"\$([a-z]\w*)", target["expr"])) <= set(variables)
    rows = [panel["title"] for panel in BOARD["panels"] if panel["type"] == "row"]
    assert rows == [
        "Now", "Traffic", "Latency", "Access", "Connections and TLS", "Store", "Database", "Process", "Audit log",
        "Upkeep"]


def test_no_two_panels_overlap():
    places = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert max(x for x, _ in cells) < 24 and not places & cells, panel["title"]
        places |= cells
