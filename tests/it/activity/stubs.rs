//! Records that the database refuses for what is in them: the others of their batch are kept whole.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor};

use crate::support::{ADMIN, Api, Mcp, Stage, Tenant, Tool, Upstream, settle};

const SOON: Duration = Duration::from_secs(10);
/// Attempts in one batch, one of them with what the database refuses.
const BATCH: usize = 8;

struct Scene {
    stage: Stage,
    tenant: Tenant,
    agent: Api,
    upstream: Upstream,
}

impl Scene {
    async fn start() -> Scene {
        let stage = Stage::with(&[ADMIN]).await;
        let tenant = stage.tenant("acme").await;
        let upstream = Upstream::handshake(vec![Tool::writes("put"), Tool::reads("look")]).await;
        tenant.add("up", &upstream).await;
        let agent = tenant.agent().await;
        Scene { stage, tenant, agent, upstream }
    }

    /// From now on the log refuses records of which this holds, and counts how often it did.
    async fn refuse(&self, condition: &str) {
        let statements = format!(
            "create sequence refusals;
             create function refuse() returns trigger language plpgsql security definer as $$ begin
                 if {condition} then
                     perform nextval('public.refusals');
                     raise exception using errcode = '22023', message = 'not this one';
                 end if;
                 return new;
             end $$;
             create trigger refuse before insert on activity_open for each row execute function refuse();
             create trigger refuse before insert on activity for each row execute function refuse()"
        );
        self.stage.database.connect().await.execute(AssertSqlSafe(statements)).await.unwrap();
    }

    /// Makes calls whose records all come into one batch: while this table is locked the batch before it, of one
    /// record, does not end. Gives their codes.
    async fn in_one_batch(&self, table: &str, variant: &str, clients: &[(&Api, &str)]) -> Vec<String> {
        let mut connection = self.stage.database.connect().await;
        let mut tx = connection.begin().await.unwrap();
        let lock = format!("lock table {table} in access exclusive mode");
        sqlx::query(AssertSqlSafe(lock)).execute(&mut *tx).await.unwrap();
        let first = self.call(&self.agent, variant, "first");
        let waiting = "select count(*) from pg_stat_activity where datname = current_database()
             and wait_event_type = 'Lock' and query ilike '%activity%'";
        settle(1, SOON, || self.stage.database.count(waiting)).await;
        let others: Vec<_> = clients.iter().map(|(api, ticket)| self.call(api, variant, ticket)).collect();
        let queued = (clients.len() + 1) as f64;
        self.stage
            .gateway
            .scrape_until("the others to wait for it", |page| {
                page.sum("mcpproxy_activity_buffer_records", &[]) >= queued
            })
            .await;
        tx.rollback().await.unwrap();
        assert_eq!(first.await.unwrap(), "ok");
        let mut codes = Vec::new();
        for other in others {
            codes.push(other.await.unwrap());
        }
        codes
    }

    fn call(&self, api: &Api, variant: &str, ticket: &str) -> tokio::task::JoinHandle<String> {
        let tool = if variant == "read" { "up:look" } else { "up:put" };
        let (client, variant) = (Mcp::bare(api), variant.to_owned());
        let arguments = json!({ "ticket": ticket });
        tokio::spawn(async move { client.run(&variant, tool, &arguments).await.code() })
    }

    async fn refusals(&self) -> i64 {
        self.stage.database.count("select case when is_called then last_value else 0 end from refusals").await
    }

    async fn counted(&self, name: &str) -> f64 {
        self.stage.gateway.scrape().await.sum(name, &[])
    }
}

fn tickets() -> Vec<String> {
    (0..BATCH).map(|n| if n == 2 { "poison".to_owned() } else { format!("good-{n}") }).collect()
}

/// All but one are whole; of that one it is known who attempted it, when, and how it ended.
fn check(records: &[Value], agent: &Api) {
    let (stubs, whole): (Vec<&Value>, Vec<&Value>) =
        records.iter().partition(|record| record["error_code"] == "record_stub");
    assert_eq!(stubs.len(), 1, "{records:?}");
    let stub = stubs[0];
    assert_eq!(
        (&stub["key_id"], &stub["status"], &stub["arguments"]),
        (&json!(agent.id), &json!("success"), &Value::Null),
        "{stub}"
    );
    let texts: Vec<&str> = whole.iter().map(|record| record["arguments"].as_str().unwrap()).collect();
    for ticket in tickets().iter().filter(|ticket| *ticket != "poison") {
        assert_eq!(texts.iter().filter(|text| text.contains(&**ticket)).count(), 1, "{ticket}: {texts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_among_many_becomes_a_stub_before_it_is_sent() {
    let scene = Scene::start().await;
    scene.refuse("new.arguments like '%poison%'").await;
    let tickets = tickets();
    let clients: Vec<(&Api, &str)> = tickets.iter().map(|ticket| (&scene.agent, &**ticket)).collect();
    let codes = scene.in_one_batch("activity_open", "write", &clients).await;
    assert_eq!(codes, vec!["ok"; BATCH]);
    assert_eq!(scene.upstream.counts().calls, BATCH + 1);
    check(&scene.tenant.records("type=tool_call", BATCH + 1).await, &scene.agent);
    // of 8, of 4, of 2 and alone when they were opened, and again when it was closed
    let refusals = scene.refusals().await;
    assert!(refusals > 4, "the batch was not halved: {refusals}");
    assert_eq!(scene.counted("mcpproxy_activity_records_stubbed_total").await, 1.0);
    assert_eq!(scene.counted("mcpproxy_activity_records_lost_total").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_read_among_many_becomes_a_stub_at_its_end() {
    let scene = Scene::start().await;
    scene.refuse("new.arguments like '%poison%'").await;
    let tickets = tickets();
    let clients: Vec<(&Api, &str)> = tickets.iter().map(|ticket| (&scene.agent, &**ticket)).collect();
    let codes = scene.in_one_batch("activity", "read", &clients).await;
    assert_eq!(codes, vec!["ok"; BATCH]);
    check(&scene.tenant.records("type=tool_call", BATCH + 1).await, &scene.agent);
    assert!(scene.refusals().await >= 4, "the batch was not halved");
    assert_eq!(scene.counted("mcpproxy_activity_records_stubbed_total").await, 1.0);
}

/// Not even a stub is taken: what would write does not run, what read is lost and said so, and nobody else notices.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_whole_costs_nobody_else() {
    let scene = Scene::start().await;
    let cursed = scene.tenant.agent().await;
    scene.refuse(&format!("new.key_id = '{}'", cursed.id)).await;
    let tickets = tickets();
    let clients: Vec<(&Api, &str)> = tickets
        .iter()
        .map(|ticket| (if ticket == "poison" { &cursed } else { &scene.agent }, &**ticket))
        .collect();
    let mut expected = vec!["ok"; BATCH];
    assert_eq!(scene.in_one_batch("activity", "read", &clients).await, expected);
    scene.tenant.records("type=tool_call", BATCH).await;
    // it is given up after the others are written
    settle(1.0, SOON, || scene.counted("mcpproxy_activity_records_lost_total")).await;
    let said = scene.stage.gateway.log();
    assert_eq!(said.matches("an activity record was lost").count(), 1, "{said}");

    expected[2] = "record_unavailable";
    assert_eq!(scene.in_one_batch("activity_open", "write", &clients).await, expected);
    scene.tenant.records("type=tool_call", 2 * BATCH).await;
    // the reads, and the calls but for the one
    assert_eq!(scene.upstream.counts().calls, BATCH + 1 + BATCH);
    assert!(!scene.upstream.calls().iter().any(|call| call.tool == "put" && call.ticket() == "poison"));
}
