//! Tenants take turns at the service: what one has it do costs the others a request at a time.

use super::{SOON, helped};
use crate::support::{Database, Embedder, Gateway, Mood, Stage, Tool, Upstream, eventually, settle};

const TROUBLE: &str = "definitions of a tenant got no vectors";
/// Every definition in a request of its own.
const ONE_BY_ONE: (&str, &str) = ("MCPPROXY__SEARCH__EMBEDDINGS_BATCH", "1");

async fn upstream(tools: &[&str]) -> Upstream {
    Upstream::handshake(tools.iter().map(|name| Tool::new(name)).collect()).await
}

#[tokio::test]
async fn nobody_waits_for_what_the_service_cannot_take() {
    let embedder = Embedder::start(&[("two", "qqxy")]).await;
    let mut settings = embedder.settings().to_vec();
    settings.push(("MCPPROXY__SEARCH__EMBEDDINGS_TIMEOUT_S", "1"));
    let stage = Stage::with(&settings).await;
    // in the order in which tenants are looked at
    let (first, second) = (stage.tenant("first").await, stage.tenant("second").await);
    let victim = stage.tenant("victim").await;
    let failing = upstream(&["widget_one", "widget_two", "unbearable"]).await;
    let hanging = upstream(&["widget_one", "widget_two", "endless"]).await;
    first.add("up", &failing).await;
    second.add("up", &hanging).await;
    victim.add("up", &upstream(&["widget_two"]).await).await;
    helped(&victim.agent().await, "qqxy").await;
    // and of those tenants all but the one
    settle(5, SOON, || stage.database.count("select count(*) from tool_embeddings")).await;
    for tenant in [&first, &second] {
        helped(&tenant.agent().await, "qqxy").await;
    }
}

#[tokio::test]
async fn a_backlog_is_its_own_tenants() {
    let embedder = Embedder::start(&[("two", "qqxy")]).await;
    embedder.set(Mood::After(100));
    let mut settings = embedder.settings().to_vec();
    settings.push(ONE_BY_ONE);
    let stage = Stage::with(&settings).await;
    let (hostile, victim) = (stage.tenant("hostile").await, stage.tenant("victim").await);
    let names: Vec<String> = (0..200).map(|n| format!("widget_{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    hostile.add("up", &upstream(&names).await).await;
    settle(true, SOON, || async { embedder.requests().len() > 2 }).await;
    victim.add("up", &upstream(&["gadget_two"]).await).await;
    settle(1, SOON, || async { embedder.sent("gadget two") }).await;
    let before = embedder.sent("widget");
    assert!(before < 150, "all of {before} others came first");

    // who has lost the lease sends nothing beside who has it
    settings[2].1 = "key-of-the-other-replica";
    let other = Gateway::start(&stage.database, &settings).await;
    let moved = "update leases set epoch = epoch + 1, replica_id = (select replica_id from replicas
        where replica_id <> leases.replica_id and stopped_at is null) where name = 'embeddings'";
    sqlx::raw_sql(moved).execute(&mut stage.database.connect().await).await.unwrap();
    let with_key = |key: &str| -> Vec<usize> {
        let requests = embedder.requests().into_iter().enumerate();
        requests.filter(|(_, request)| request.authorization.ends_with(key)).map(|(at, _)| at).collect()
    };
    let theirs = || with_key("key-of-the-other-replica");
    settle(true, SOON, || async { theirs().len() >= 5 }).await;
    let last = with_key("key-of-the-embeddings-service").pop().unwrap();
    assert!(theirs()[1] > last, "{:?} beside {last}", theirs());
    drop(other);
}

#[tokio::test]
async fn what_is_refused_is_one_line_and_not_sent_again() {
    let embedder = Embedder::start(&[("two", "qqxy")]).await;
    let stage = Stage::with(&embedder.settings()).await;
    let (tenant, neighbour) = (stage.tenant("acme").await, stage.tenant("neighbour").await);
    let names: Vec<String> = (0..100).map(|n| format!("indigestible_{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    tenant.add("up", &upstream(&names).await).await;
    let told = || stage.gateway.log().matches(TROUBLE).count();
    settle(1, SOON, || async { told() }).await;
    let log = stage.gateway.log();
    assert!(log.lines().any(|line| line.contains(TROUBLE) && line.contains("count=100")), "{log}");
    let requests = embedder.requests().len();
    assert!((100..120).contains(&requests), "{requests} requests for 100 definitions");

    // neither an error nor a change has them sent again
    embedder.set(Mood::Status(429));
    neighbour.add("up", &upstream(&["widget_one"]).await).await;
    settle(true, SOON, || async { stage.gateway.log().contains("HTTP 429") }).await;
    embedder.set(Mood::Good);
    let sent = embedder.sent("indigestible");
    tenant.add("more", &upstream(&["widget_two"]).await).await;
    helped(&tenant.agent().await, "qqxy").await;
    helped(&neighbour.agent().await, "qqxy").await;
    assert_eq!((embedder.sent("indigestible"), told()), (sent, 1));
}

#[tokio::test]
async fn nothing_is_sent_of_who_is_gone_or_suspended() {
    let embedder = Embedder::start(&[("two", "qqxy")]).await;
    let stage = Stage::with(&embedder.settings()).await;
    let platform = stage.platform();
    let (gone, away) = (stage.tenant("gone").await, stage.tenant("away").await);
    let neighbour = stage.tenant("neighbour").await;
    gone.add("up", &upstream(&["gadget_one"]).await).await;
    settle(1, SOON, || stage.database.count("select count(*) from tool_embeddings")).await;
    platform.delete("/api/v1/tenants/gone").await.expect(204);

    // its tools are found while there are none yet, and it is suspended
    embedder.set(Mood::Status(500));
    away.add("up", &upstream(&["gizmo_two"]).await).await;
    settle(true, SOON, || async { embedder.sent("gizmo") > 0 }).await;
    platform.post("/api/v1/tenants/away/suspend", &serde_json::json!({})).await.expect(200);
    // whoever has a turn after that finds it suspended
    let sent = |word: &str| embedder.sent(word);
    neighbour.add("up", &upstream(&["widget_two"]).await).await;
    settle(true, SOON, || async { sent("widget two") > 0 }).await;
    let before = sent("gizmo");
    embedder.set(Mood::Good);
    helped(&neighbour.agent().await, "qqxy").await;
    let rows =
        "select count(*) from tool_embeddings e join tenants t using (tenant_id) where t.name = 'away'";
    for name in ["widget_three", "widget_four"] {
        neighbour.add(&name.replace('_', "-"), &upstream(&[name]).await).await;
        settle(1, SOON, || async { sent(&name.replace('_', " ")) }).await;
    }
    assert_eq!((stage.database.count(rows).await, sent("gadget"), sent("gizmo")), (0, 1, before));
    let log = stage.gateway.log();
    assert!(!log.contains("definitions got no vectors; it is tried again"), "{log}");
    platform.post("/api/v1/tenants/away/resume", &serde_json::json!({})).await.expect(200);
    settle(1, SOON, || stage.database.count(rows)).await;
}

/// More than one query finds, all at once.
#[tokio::test]
async fn all_tenants_are_found() {
    let embedder = Embedder::start(&[]).await;
    let database = Database::migrated().await;
    let made = "
        insert into tenants (tenant_id, name) select gen_random_uuid(), 't' || n from generate_series(1, 250) n;
        insert into revisions (tenant_id, kind)
            select tenant_id, kind from tenants, unnest(array['catalogue', 'access', 'policy']) kind
            where tenant_id <> '00000000-0000-0000-0000-000000000000';
        insert into servers (tenant_id, server_id, name, kind, url, baselined, connection, last_error, rev)
            select tenant_id, gen_random_uuid(), 's', 'http', 'http://127.0.0.1:9/mcp', true, 'disconnected', 'x', 1 from tenants
            where tenant_id <> '00000000-0000-0000-0000-000000000000';
        insert into tools (tenant_id, server_id, name, definition, pin, state, rev)
            select tenant_id, server_id, 't', '{\"name\":\"t\"}', 'v1:' || md5(server_id::text), 'approved', 1
            from servers;";
    sqlx::raw_sql(made).execute(&mut database.connect().await).await.unwrap();
    let _gateway = Gateway::start(&database, &embedder.settings()).await;
    let rows = "select count(distinct tenant_id) from tool_embeddings";
    eventually("vectors of all", SOON * 6, || async { (database.count(rows).await == 250).then_some(()) })
        .await;
}
