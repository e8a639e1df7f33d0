//! Questions of handshake servers reach modern clients as answers, while the call is held open on one of three replicas.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::{INVALID, ON, Way, assert_invalid, client, open, state_of};
use crate::support::upstream::{Say, Talk};
use crate::support::{Api, Gateway, Mcp, Outcome, Stage, Tenant, Tool, Upstream, settle};

pub(super) const SOON: Duration = Duration::from_secs(5);
/// A form as the server asks for it, oddly.
pub(super) const FORM: &str = r#"{"x":1e400,"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}"#;
pub(super) const ELICIT: (&str, &str) = ("elicitation/create", FORM);
/// Most questions of one call that wait for a later round.
const LATER_MAX: usize = 8;
/// Answer of a person.
pub(super) const ANA: &str = r#"{ "action":"accept","content":{"name":"ana","n":1e400}}"#;
/// The call of the tool that asks, on `/mcp`.
pub(super) const WAY: Way =
    Way { variant: Some("write"), tool: "up:asker", arguments: r#"{"a":1,"b":[1.0]}"# };
/// The call of the tool that asks twice, on `/mcp/direct`.
const TWICE: Way = Way { variant: None, tool: "up:twice", arguments: "{}" };

/// Three replicas, and a handshake server that asks.
pub(super) struct Three {
    pub(super) stage: Stage,
    pub(super) second: Gateway,
    pub(super) third: Gateway,
    pub(super) tenant: Tenant,
    pub(super) upstream: Upstream,
    /// Gate of the result after the question.
    pub(super) gate: watch::Sender<bool>,
}

impl Three {
    /// Three replicas whose tool answers at once when it has its reply, or when the gate opens.
    pub(super) async fn start(is_open: bool) -> Three {
        let stage = Stage::with(&[ON]).await;
        let second = Gateway::start(&stage.database, &[ON]).await;
        let third = Gateway::start(&stage.database, &[ON]).await;
        let tenant = open(&stage, "acme").await;
        let (gate, opened) = watch::channel(is_open);
        let talk = |asks: &[(&'static str, &'static str)], bytes| {
            Say::Talks(Talk { asks: asks.to_vec(), gate: opened.clone(), bytes, is_patient: true })
        };
        let impatient = Talk { asks: vec![ELICIT], gate: opened.clone(), bytes: 0, is_patient: false };
        let crowd = Talk { asks: vec![ELICIT; LATER_MAX + 2], ..impatient.clone() };
        let upstream = Upstream::handshake(vec![
            Tool::writes("asker").says(talk(&[ELICIT], 0)),
            Tool::reads("twice").says(talk(&[ELICIT, ("roots/list", "{}")], 0)),
            Tool::reads("large").says(talk(&[ELICIT], 3_000_000)),
            Tool::reads("huge").says(talk(&[ELICIT], 5_000_000)),
            Tool::writes("impatient").says(Say::Talks(impatient)),
            Tool::writes("crowd").says(Say::Talks(crowd)),
            Tool::reads("roots").says(talk(&[("roots/list", "{}")], 0)),
        ])
        .await;
        tenant.add("up", &upstream).await;
        Three { stage, second, third, tenant, upstream, gate }
    }

    /// The caller at each replica.
    pub(super) fn everywhere(&self, api: &Api) -> [Api; 3] {
        [&self.stage.gateway, &self.second, &self.third].map(|gateway| gateway.ask_as(api))
    }

    pub(super) fn calls(&self) -> usize {
        self.upstream.counts().calls
    }

    /// Letters and replies on their way.
    pub(super) async fn stored(&self) -> i64 {
        self.stage.database.count("select count(*) from client_replies").await
    }
}

/// A later round: this answer to the question, with the state.
pub(super) async fn answer(way: Way, client: Mcp, answer: &str, state: &str) -> Outcome {
    way.go(client, &more(answer, state)).await
}

pub(super) fn more(answer: &str, state: &str) -> String {
    format!(r#","inputResponses":{{"question":{answer}}},"requestState":"{state}""#)
}

/// The text of a result.
#[track_caller]
pub(super) fn text(outcome: &Outcome) -> String {
    outcome.ok()["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{outcome:?}")).to_owned()
}

/// The method that a result asks, with its state.
#[track_caller]
fn asked(outcome: &Outcome) -> (String, String) {
    let result: Value = serde_json::from_str(&outcome.raw().replace("1e400", "1")).unwrap();
    (result["inputRequests"]["question"]["method"].as_str().unwrap_or_default().to_owned(), state_of(outcome))
}

#[tokio::test]
async fn a_question_is_an_answer_and_its_call_goes_on_from_any_replica() {
    let three = Three::start(true).await;
    let direct = Way { variant: None, ..WAY };
    for (way, at) in [(WAY, 0), (direct, 0), (WAY, 1), (direct, 2)] {
        let agent = three.tenant.agent().await;
        let everywhere = three.everywhere(&agent);
        let before = three.calls();
        let first = way.go(client(&agent), "").await;
        let state = state_of(&first);
        let shown = FORM.replace("Who?", "Server 'up' asks: Who?");
        let expected = format!(
            r#"{{"resultType":"input_required","inputRequests":{{"question":{{"method":"elicitation/create","params":{shown}}}}},"requestState":"{state}"}}"#
        );
        assert_eq!(first.raw(), expected);
        let done = answer(way, client(&everywhere[at]), ANA, &state).await;
        let said = text(&done);
        assert!(said.contains(&format!(r#""result":{ANA}"#)), "byte for byte: {said}");
        assert_eq!(done.result()["resultType"], "complete");
        for api in &everywhere {
            assert_invalid(&answer(way, client(api), ANA, &state).await, "it was given before");
        }
        assert_eq!(three.calls() - before, 1);

        let records = three.tenant.records(&format!("key={}", agent.id), 6).await;
        let question = records.iter().find(|record| record["type"] == "question").unwrap();
        let of = |status: &str, parent: &Value| {
            let is = |record: &&Value| record["status"] == status && record["parent_id"] == *parent;
            records.iter().filter(is).filter(|record| record["type"] != "question").collect::<Vec<_>>()
        };
        let [call] = of("success", &Value::Null)[..] else { panic!("{records:?}") };
        assert!(
            call["response"].to_string().contains("ask-"),
            "the result is in the record of the call: {call}"
        );
        assert!(call["wait_ms"].as_f64().unwrap() > 0.0, "{call}");
        assert_eq!((&question["parent_id"], &question["status"]), (&call["id"], &json!("success")));
        let [round] = of("success", &call["id"])[..] else { panic!("{records:?}") };
        assert_eq!(round["response"], Value::Null, "{round}");
        assert_eq!(of("blocked", &call["id"]).len() + of("blocked", &Value::Null).len(), 3, "{records:?}");
        let texts = json!([question, round]).to_string();
        assert!(!texts.contains("ana") && !texts.contains(&state), "{texts}");
    }
}

#[tokio::test]
async fn a_second_question_is_a_further_round() {
    let three = Three::start(true).await;
    three.tenant.platform.patch("/api/v1/servers/up", &json!({"relay": {"roots": true}})).await.expect(200);
    let agent = three.tenant.agent().await;
    let declares = |api: &Api| Mcp::modern(api).declaring(r#"{"elicitation":{"form":{}},"roots":{}}"#);
    let [first, second, third] = three.everywhere(&agent);
    let (method, state) = asked(&TWICE.go(declares(&first), "").await);
    assert_eq!(method, "elicitation/create");
    let (method, next) = asked(&answer(TWICE, declares(&second), ANA, &state).await);
    assert_eq!(method, "roots/list");
    // the answer to the first question is none to the second
    assert_invalid(&answer(TWICE, declares(&third), ANA, &next).await, "an answer of another kind");
    let roots = r#"{"roots":[{"uri":"file:///a"}]}"#;
    let said = text(&answer(TWICE, declares(&third), roots, &next).await);
    assert!(said.contains(ANA) && said.contains(roots), "{said}");
    // a client that declares nothing with its answer is not asked again: the call goes on without
    let (_, state) = asked(&TWICE.go(declares(&first), "").await);
    let said = text(&answer(TWICE, Mcp::modern(&second), ANA, &state).await);
    assert!(said.contains(ANA) && said.contains("-32603"), "{said}");
    assert_eq!(three.calls(), 2, "an answer without capabilities is no new call");
}

#[tokio::test]
async fn questions_that_come_at_once_are_rounds_one_after_the_other() {
    let three = Three::start(false).await;
    let agent = three.tenant.agent().await;
    let crowd = Way { tool: "up:crowd", ..WAY };
    let mut state = crowd.begin(client(&agent)).await;
    // one more than wait for later rounds is refused
    settle(1, SOON, || async { three.upstream.replies().len() }).await;
    let everywhere = three.everywhere(&agent);
    for n in 0..LATER_MAX {
        state = state_of(&answer(crowd, client(&everywhere[n % 3]), ANA, &state).await);
    }
    settle(LATER_MAX + 1, SOON, || async { three.upstream.replies().len() }).await;
    let ended = async {
        settle(LATER_MAX + 2, SOON, || async { three.upstream.replies().len() }).await;
        three.gate.send_replace(true);
    };
    let (last, ()) = tokio::join!(answer(crowd, client(&agent), ANA, &state), ended);
    assert_eq!(text(&last), "nobody answered");
    let refused = three.upstream.replies().iter().filter(|reply| reply.contains("-32603")).count();
    assert_eq!((refused, three.calls()), (1, 1));
}

#[tokio::test]
async fn an_answer_that_is_sent_to_all_replicas_counts_once() {
    let three = Three::start(true).await;
    let agent = three.tenant.agent().await;
    let state = WAY.begin(client(&agent)).await;
    let everywhere = three.everywhere(&agent);
    let answers = everywhere.iter().map(|api| answer(WAY, client(api), ANA, &state));
    let outcomes = futures_util::future::join_all(answers).await;
    let (done, refused): (Vec<&Outcome>, Vec<&Outcome>) =
        outcomes.iter().partition(|outcome| !outcome.answer.text.contains(INVALID));
    assert_eq!((done.len(), refused.len()), (1, 2), "{outcomes:?}");
    assert!(text(done[0]).contains("ana"));
    assert_eq!((three.calls(), three.upstream.replies().len()), (1, 1));
    settle(0, SOON, || three.stored()).await;
}

#[tokio::test]
async fn nobody_else_answers_and_nothing_else_is_an_answer() {
    let three = Three::start(true).await;
    let (agent, other) = (three.tenant.agent().await, three.tenant.agent().await);
    let foreign = open(&three.stage, "other").await;
    foreign.add("up", &three.upstream).await;
    let foreigner = foreign.agent().await;
    let state = WAY.begin(client(&agent)).await;
    let there = three.second.ask_as(&agent);
    let tampered: String = (state.char_indices())
        .map(|(at, c)| {
            if at != 40 {
                c
            } else if c == 'A' {
                'B'
            } else {
                'A'
            }
        })
        .collect();
    let moved = Way { arguments: r#"{"a":2}"#, ..WAY };
    for (what, way, api, given, state) in [
        ("another key", WAY, &other, ANA, &state),
        ("another tenant", WAY, &foreigner, ANA, &state),
        ("a changed state", WAY, &agent, ANA, &tampered),
        ("other arguments", moved, &agent, ANA, &state),
        ("another tool", Way { tool: "up:large", variant: Some("read"), ..WAY }, &agent, ANA, &state),
        ("another endpoint", Way { variant: None, ..WAY }, &agent, ANA, &state),
        ("no action", WAY, &agent, "{}", &state),
        ("an unknown action", WAY, &there, r#"{"action":"maybe"}"#, &state),
        ("no object", WAY, &there, "7", &state),
        ("an odd content", WAY, &agent, r#"{"action":"accept","content":[]}"#, &state),
    ] {
        assert_invalid(&answer(way, client(api), given, state).await, what);
    }
    assert_eq!((three.calls(), three.upstream.replies().len()), (1, 0));
    // a round without the answer asks again, by another state
    let again = WAY.go(client(&there), &format!(r#","requestState":"{state}""#)).await;
    let (method, next) = asked(&again);
    assert_eq!(method, "elicitation/create");
    assert!(again.raw().contains("Server 'up' asks: Who?"), "{again:?}");
    assert_invalid(&answer(WAY, client(&agent), ANA, &state).await, "a state that was used");
    let cancel = r#"{"action":"cancel"}"#;
    assert!(text(&answer(WAY, client(&there), cancel, &next).await).contains(cancel));
    assert_eq!((three.calls(), three.upstream.replies().len()), (1, 1));
}

#[tokio::test]
async fn only_who_can_be_asked_is_and_only_what_relay_allows() {
    let three = Three::start(true).await;
    let agent = three.tenant.agent().await;
    let roots = Way { tool: "up:roots", variant: Some("read"), arguments: "{}" };
    let declares = |capabilities: &str| Mcp::modern(&agent).declaring(capabilities);
    for (way, client) in [
        (WAY, declares("{}")),
        (WAY, declares(r#"{"sampling":{},"roots":{}}"#)),
        (WAY, declares(r#"{"elicitation":{"url":{}}}"#)),
        (roots, declares(r#"{"elicitation":{"form":{}},"roots":{}}"#)),
    ] {
        let said = text(&way.go(client, "").await);
        assert!(said.contains("-32601"), "{said}");
    }
    // nobody was asked; what a client could have been asked has a record
    let kept_back = three.tenant.records("type=question", 1).await;
    assert_eq!((&kept_back[0]["tool"], &kept_back[0]["status"]), (&json!("roots/list"), &json!("blocked")));
}

#[tokio::test]
async fn a_large_result_comes_from_the_replica_itself_and_from_another_one() {
    let three = Three::start(true).await;
    let agent = three.tenant.agent().await;
    let large = Way { tool: "up:large", variant: None, arguments: "{}" };
    for api in three.everywhere(&agent) {
        let state = large.begin(client(&agent)).await;
        let done = answer(large, client(&api), ANA, &state).await;
        assert!(text(&done).len() > 3_000_000, "{}", done.answer.text.len());
    }
    // what is too large for a letter comes from the replica itself alone
    let huge = Way { tool: "up:huge", ..large };
    let [here, there, _] = three.everywhere(&agent);
    let state = huge.begin(client(&agent)).await;
    assert!(text(&answer(huge, client(&here), ANA, &state).await).len() > 5_000_000);
    let state = huge.begin(client(&agent)).await;
    let said = answer(huge, client(&there), ANA, &state).await.answer.text;
    assert!(said.contains("larger than 4 MB"), "{said}");
    assert_eq!(three.calls(), 5);
}
