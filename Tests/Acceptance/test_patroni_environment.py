"""A cluster of Patroni, for tests with --long: it starts, and another leader takes over with everything that was acknowledged."""
import pytest

from patroni_cluster import PatroniCluster


@pytest.fixture(name="cluster", scope="module")
def patroni_cluster(is_long, tmp_path_factory):
    if not is_long:
        pytest.skip("a cluster of Patroni takes long to start: --long")
    with PatroniCluster(tmp_path_factory.mktemp("patroni")) as cluster:
        cluster.sql("CREATE TABLE notes (number int PRIMARY KEY)")
        cluster.create_role("app", "secret", "LOGIN SUPERUSER")
        yield cluster


def test_replication_is_synchronous(cluster):
    leader = cluster.wait_until_whole()
    names = leader.value("SHOW synchronous_standby_names")
    assert names in {node.name for node in cluster.nodes} - {leader.name}
    assert (leader.value("SHOW synchronous_commit"), leader.value("SHOW fsync")) == ("on", "on")


@pytest.mark.parametrize("number, fault", enumerate(("kill_postgres", "kill", "freeze", "switch")))
def test_another_leader_takes_over(cluster, number, fault):
    old = cluster.wait_until_whole()
    old.sql(f"INSERT INTO notes VALUES ({number})", user="app")
    if fault == "switch":
        new = cluster.switch()
    else:
        getattr(old, fault)()
        new = cluster.wait_for_leader(other_than=old)
    assert new is not old
    assert new.sql("SELECT number FROM notes ORDER BY number DESC LIMIT 1", user="app") == [(str(number),)]
    if fault == "kill":
        old.start()
    old.thaw()
    assert cluster.wait_until_whole() is new
