//! Three replicas behind a round robin: each step of a request on another one, some of which die in between.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::PgConnection;

use super::in_band::{ARGS, accept, answer, call, question};
use super::{asked, asking_of, decide, state, write};
use crate::rounds::{client, state_of};
use crate::support::{
    Answer, Api, Balancer, Database, Gateway, Outcome, Stage, Tenant, Tool, Upstream, settle, upstream,
};

const SOON: Duration = Duration::from_secs(5);
/// Sessions of the gateways that wait for a lock.
pub(super) const WAITING: &str = "select count(*) from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock'";

/// Three replicas of a tenant whose every call asks.
pub(super) struct Three {
    pub(super) stage: Stage,
    pub(super) second: Gateway,
    pub(super) third: Gateway,
    pub(super) tenant: Tenant,
    upstream: Upstream,
    pub(super) balancer: Balancer,
}

impl Three {
    pub(super) async fn start() -> Three {
        Three::with(upstream::zoo()).await
    }

    /// Three replicas of a tenant with a server of these tools.
    pub(super) async fn with(tools: Vec<Tool>) -> Three {
        let (stage, tenant, upstream) = asking_of(&[], json!([]), tools).await;
        let second = Gateway::start(&stage.database, &[]).await;
        let third = Gateway::start(&stage.database, &[]).await;
        let balancer = Balancer::before(&[&stage.gateway, &second, &third]).await;
        Three { stage, second, third, tenant, upstream, balancer }
    }

    /// An agent and an approver behind the balancer, which begins with the first replica.
    pub(super) async fn people(&self) -> (Api, Api) {
        let (agent, approver) = (self.tenant.agent().await, self.tenant.approver().await);
        (agent.at(&self.balancer.url), approver.at(&self.balancer.url))
    }

    /// Positions of the replicas that served this caller.
    pub(super) fn served(&self, api: &Api) -> Vec<usize> {
        let passed = self.balancer.passed(api.key.as_deref().unwrap());
        passed.iter().map(|exchange| exchange.replica).collect()
    }

    /// Returns the caller at each replica.
    pub(super) fn everywhere(&self, api: &Api) -> [Api; 3] {
        [&self.stage.gateway, &self.second, &self.third].map(|gateway| gateway.ask_as(api))
    }

    pub(super) fn calls(&self) -> usize {
        self.upstream.counts().calls
    }
}

/// A lock on every permission request: decisions wait for it.
pub(super) struct Hold(PgConnection);

impl Hold {
    pub(super) async fn begin(database: &Database) -> Hold {
        let mut connection = database.connect().await;
        sqlx::raw_sql("begin; select id from consent_requests for update")
            .execute(&mut connection)
            .await
            .unwrap();
        Hold(connection)
    }

    pub(super) async fn end(mut self) {
        sqlx::raw_sql("rollback").execute(&mut self.0).await.unwrap();
    }
}

/// Decides a request in the background.
fn deciding(api: &Api, id: &str, decision: &'static str) -> tokio::task::JoinHandle<Answer> {
    let (api, id) = (api.clone(), id.to_owned());
    tokio::spawn(async move { decide(&api, &id, decision).await })
}

/// Returns true if the call ran, and was not asked about.
fn ran(outcome: &Outcome) -> bool {
    outcome.code() == "ok" && outcome.result()["resultType"] != "input_required"
}

#[tokio::test]
async fn asked_on_one_answered_on_another_run_on_a_third() {
    let three = Three::start().await;
    let (agent, approver) = three.people().await;
    let args = json!({"n": 1});
    let id = asked(&agent, &args).await;
    decide(&approver, &id, "allow_once").await.expect(200);
    write(&agent, &args).await.ok();
    assert_eq!((three.served(&agent), three.served(&approver)), (vec![0, 2], vec![1]));
    settle(json!("succeeded"), SOON, || state(&approver, &id)).await;
    for api in three.everywhere(&agent) {
        assert_ne!(asked(&api, &args).await, id, "a permission is used up");
    }
    assert_eq!(three.calls(), 1);
}

#[tokio::test]
async fn asked_in_the_call_on_one_answered_on_another_run_on_a_third() {
    let three = Three::start().await;
    let (agent, approver) = three.people().await;
    let (_, sealed) = question(&agent).await;
    let id = agent.items("/api/v1/consent").await[0]["id"].as_str().unwrap().to_owned();
    decide(&approver, &id, "allow_once").await.expect(200);
    let done = call(client(&agent), "writer", ARGS, &answer(&accept("allow_once"), &sealed)).await;
    assert!(ran(&done), "{done:?}");
    assert_eq!((three.served(&agent), three.served(&approver)), (vec![0, 1, 0], vec![2]));
    assert_eq!(three.calls(), 1);
}

#[tokio::test]
async fn an_answer_that_is_sent_to_all_replicas_counts_once() {
    let three = Three::start().await;
    let (agent, _) = three.people().await;
    let (_, sealed) = question(&agent).await;
    let allow = answer(&accept("allow_once"), &sealed);
    let everywhere = three.everywhere(&agent);
    let outcomes = futures_util::future::join_all(
        everywhere.iter().map(|api| call(client(api), "writer", ARGS, &allow)),
    )
    .await;
    assert_eq!(outcomes.iter().filter(|outcome| ran(outcome)).count(), 1, "{outcomes:?}");
    for outcome in outcomes.iter().filter(|outcome| !ran(outcome)) {
        // the one that ran may have been under way, or done
        assert!(["ok", "consent_lapsed"].contains(&&*outcome.code()), "{outcome:?}");
    }
    for api in &everywhere {
        let again = call(client(api), "writer", ARGS, &allow).await;
        assert_ne!(state_of(&again), sealed, "a question of its own");
    }
    assert_eq!(three.calls(), 1);
}

#[tokio::test]
async fn a_permission_that_all_replicas_have_found_is_used_once() {
    let three = Three::start().await;
    let (agent, approver) = three.people().await;
    let args = json!({"n": 1});
    let everywhere = three.everywhere(&agent);
    for api in &everywhere {
        asked(api, &args).await;
    }
    let id = agent.items("/api/v1/consent").await[0]["id"].as_str().unwrap().to_owned();
    decide(&approver, &id, "allow_once").await.expect(200);
    let hold = Hold::begin(&three.stage.database).await;
    let running = everywhere.map(|api| {
        let args = args.clone();
        tokio::spawn(async move { write(&api, &args).await.code() })
    });
    settle(3, SOON, || three.stage.database.count(WAITING)).await;
    hold.end().await;
    let mut codes = Vec::new();
    for call in running {
        codes.push(call.await.unwrap());
    }
    codes.sort();
    assert_eq!(codes, ["consent_lapsed", "consent_lapsed", "ok"]);
    assert_eq!(three.calls(), 1);
}

#[tokio::test]
async fn a_state_opens_on_no_replica_for_another_call() {
    let three = Three::start().await;
    let (agent, _) = three.people().await;
    let other = three.tenant.agent().await;
    let (_, sealed) = question(&agent).await;
    let allow = answer(&accept("allow_once"), &sealed);
    let mut tampered: Vec<String> = [0, 1, 20, sealed.len() / 2, sealed.len() - 1]
        .map(|at| {
            let mut bytes = sealed.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            String::from_utf8(bytes).unwrap()
        })
        .into();
    let cut = [sealed.get(1..), sealed.get(..sealed.len() - 1)].map(|part| part.unwrap().to_owned());
    tampered.extend(cut.into_iter().chain([String::new()]));
    let refuse = async || {
        for (here, strange) in three.everywhere(&agent).iter().zip(three.everywhere(&other)) {
            let foreign = call(client(&strange), "writer", ARGS, &allow).await;
            assert_eq!(foreign.error()["code"], -32602, "another key");
            for args in ["{}", r#"{"path":"/b","password":"hunter2hunter2"}"#] {
                let changed = call(client(here), "writer", args, &allow).await;
                assert_eq!(changed.error()["code"], -32602, "{args}");
            }
            for sealed in &tampered {
                let broken = call(client(here), "writer", ARGS, &answer(&accept("allow_once"), sealed)).await;
                assert_eq!(broken.error()["code"], -32602, "{sealed}");
            }
        }
    };
    refuse().await;
    // nor does a policy that asks nobody open it
    let body = json!({"version": 1, "mode": "always_allow", "rules": []});
    three.tenant.platform.ask(reqwest::Method::PUT, "/api/v1/policy", Some(&body)).await.expect(200);
    for api in three.everywhere(&other) {
        settle("ok".to_owned(), SOON, async || write(&api, &json!({})).await.code()).await;
    }
    let calls = three.calls();
    refuse().await;
    assert_eq!(three.calls(), calls);
}

#[tokio::test]
async fn the_replica_that_asked_dies() {
    let mut three = Three::start().await;
    let (agent, approver) = three.people().await;
    let (_, sealed) = question(&agent).await;
    let person = three.tenant.agent().await.at(&three.balancer.url);
    let args = json!({"n": 1});
    let id = asked(&three.stage.gateway.ask_as(&person), &args).await;
    three.stage.gateway.kill();
    decide(&approver, &id, "allow_once").await.expect(200);
    write(&person, &args).await.ok();
    let done = call(client(&agent), "writer", ARGS, &answer(&accept("allow_once"), &sealed)).await;
    assert!(ran(&done), "{done:?}");
    let path = "/api/v1/consent?state=succeeded";
    settle(2, SOON, async || approver.items(path).await.len()).await;
    assert_eq!(three.calls(), 2);
}

#[tokio::test]
async fn the_replica_that_answers_dies() {
    let mut three = Three::start().await;
    let (agent, approver) = (three.tenant.agent().await, three.tenant.approver().await);
    let (there, later) = (three.second.ask_as(&approver), three.third.ask_as(&approver));
    let runs = three.third.ask_as(&agent);
    let database = &three.stage.database;
    // in the middle of the answer: there was none
    let id = asked(&agent, &json!({"n": 1})).await;
    let hold = Hold::begin(database).await;
    let answering = deciding(&there, &id, "allow_always");
    settle(1, SOON, || database.count(WAITING)).await;
    three.second.kill();
    assert_eq!(answering.await.unwrap().status, 0, "nobody is told of an answer");
    hold.end().await;
    settle(0, SOON, || database.count(WAITING)).await;
    assert_eq!(state(&later, &id).await, "pending");
    assert_eq!(later.items("/api/v1/consent/grants").await, [Value::Null; 0]);
    decide(&later, &id, "allow_once").await.expect(200);
    write(&runs, &json!({"n": 1})).await.ok();
    assert_eq!(three.calls(), 1);
    // right after it: it holds, whether or not the person was told
    let second = Gateway::start(database, &[]).await;
    let id = asked(&agent, &json!({"n": 2})).await;
    let answering = deciding(&second.ask_as(&approver), &id, "allow_once");
    let granted = "select count(*) from consent_requests where state = 'granted'";
    settle(1, SOON, || database.count(granted)).await;
    drop(second);
    assert!(matches!(answering.await.unwrap().status, 0 | 200));
    decide(&later, &id, "allow_once").await.refused(409, "conflict");
    write(&runs, &json!({"n": 2})).await.ok();
    asked(&runs, &json!({"n": 2})).await;
    assert_eq!(three.calls(), 2);
}

#[tokio::test]
async fn of_two_people_at_one_moment_on_two_replicas_one_decides() {
    let three = Three::start().await;
    let eva = three.tenant.key(&json!({"role": "approver", "owner": "eva"})).await;
    let max = three.tenant.key(&json!({"role": "approver", "owner": "max"})).await;
    let (eva, max) = (three.second.ask_as(&eva), three.third.ask_as(&max));
    let database = &three.stage.database;
    let mut allowed = 0;
    for _ in 0..4 {
        let agent = three.tenant.agent().await;
        let id = asked(&agent, &json!({})).await;
        // both have seen that it is pending when the first one goes on
        let hold = Hold::begin(database).await;
        let racing = (deciding(&eva, &id, "allow_once"), deciding(&max, &id, "reject_once"));
        settle(2, SOON, || database.count(WAITING)).await;
        hold.end().await;
        let (eva_got, max_got) = (racing.0.await.unwrap(), racing.1.await.unwrap());
        let (loser, winner, outcome) = match eva_got.status {
            200 => (&max_got, "granted already: eva was first", "ok"),
            _ => (&eva_got, "denied already: max was first", "consent_denied"),
        };
        assert_eq!(eva_got.status.min(max_got.status), 200, "{eva_got:?} {max_got:?}");
        let says = loser.refused(409, "conflict");
        assert!(says.contains(winner), "{says}");
        assert_eq!(write(&agent, &json!({})).await.code(), outcome);
        allowed += usize::from(outcome == "ok");
        assert_eq!(three.calls(), allowed);
    }
}
