//! Who did not say what it can be asked is not asked.

use serde_json::json;

use super::{ON, Way, asking, client, open, question};
use crate::support::upstream::Say;
use crate::support::{Mcp, Stage, Tool, Upstream};

#[tokio::test]
async fn a_client_that_cannot_be_asked_sees_no_question() {
    let stage = Stage::with(&[ON]).await;
    let tenant = open(&stage, "acme").await;
    let url = r#"{"resultType":"input_required","inputRequests":{"u":{"method":"elicitation/create","params":{"mode":"url","url":"https://x.example","message":"?"}}}}"#;
    let odd = r#"{"resultType":"input_required","inputRequests":{"u":{"method":"roots/list","method":"roots/list"}}}"#;
    let roots = r#"{"resultType":"input_required","inputRequests":{"u":{"method":"roots/list"}}}"#;
    let nothing = r#"{"resultType":"input_required"}"#;
    let long = format!(r#"{{"resultType":"input_required","requestState":"{}"}}"#, "x".repeat(70_000));
    let modern = Upstream::modern(vec![
        Tool::reads("form").returns(&question("\"U\"")),
        Tool::reads("url").returns(url),
        Tool::reads("odd").returns(odd),
        Tool::reads("roots").returns(roots),
        Tool::reads("nothing").returns(nothing),
        Tool::reads("long").returns(&long),
    ])
    .await;
    let handshake = Upstream::handshake(vec![Tool::reads("form").returns(&question("\"U\""))]).await;
    tenant.add("new", &modern).await;
    tenant.add("old", &handshake).await;
    let agent = tenant.agent().await;
    let forms = || client(&agent);
    let declaring = |capabilities: &str| Mcp::modern(&agent).declaring(capabilities);
    let session = Mcp::session(&agent).await;
    let sessions = || Mcp::in_session(&agent, session.session_id()).declaring(super::FORMS);
    let rows = [
        ("new:form", Mcp::modern(&agent), "upstream_needs_input"),
        ("new:form", declaring(r#"{"sampling":{},"roots":{}}"#), "upstream_needs_input"),
        ("new:form", declaring(r#"{"elicitation":{"url":{}}}"#), "upstream_needs_input"),
        ("new:form", declaring(r#"{"elicitation":true}"#), "upstream_needs_input"),
        ("new:url", forms(), "upstream_needs_input"),
        ("new:odd", declaring(r#"{"roots":{}}"#), "upstream_invalid"),
        ("new:roots", declaring(r#"{"roots":{}}"#), "upstream_needs_input"),
        ("new:nothing", forms(), "upstream_invalid"),
        ("new:long", forms(), "upstream_too_large"),
        ("new:form", Mcp::bare(&agent), "upstream_needs_input"),
        ("new:form", sessions(), "upstream_needs_input"),
        ("old:form", forms(), "upstream_needs_input"),
    ];
    let count = rows.len();
    for (tool, client, code) in rows {
        let outcome = Way { tool, ..Way::SEARCH }.go(client, "").await;
        assert!(!outcome.answer.text.contains("Who?"), "{tool}: {outcome:?}");
        let said = outcome.refused(code);
        assert!(said["message"].as_str().unwrap().contains("may have run"), "{said}");
    }
    let records = tenant.records(&format!("key={}", agent.id), count).await;
    assert!(records.iter().all(|record| record["status"] == "error"), "{records:?}");

    // over REST nobody can be asked either
    let body = json!({"tool_variant": "call_tool_read", "name": "new:form"});
    let answer = agent.post("/api/v1/tools/call", &body).await;
    answer.refused(502, "upstream_needs_input");
    let told: Vec<String> = modern.calls().iter().map(|call| call.params.clone()).collect();
    let with = |part: &str| told.iter().filter(|params| params.contains(part)).count();
    // by default a server may ask neither for roots nor for sampling, and is not told of them
    assert_eq!(with(r#"clientCapabilities":{}"#), 8, "{told:?}");
    assert_eq!(with(r#"clientCapabilities":{"elicitation":{"form":{}}}"#), 3, "{told:?}");
}

#[tokio::test]
async fn handshake_clients_and_servers_have_no_rounds() {
    let stage = Stage::with(&[ON]).await;
    let tenant = open(&stage, "acme").await;
    let (modern, handshake) = (asking().await, Upstream::handshake(vec![Tool::reads("t")]).await);
    tenant.add("up", &modern).await;
    tenant.add("old", &handshake).await;
    let agent = tenant.agent().await;
    let more = r#","inputResponses":{"who":{"action":"cancel"}},"requestState":"U-2""#;
    Way::DIRECT.go(Mcp::bare(&agent), more).await.refused("upstream_needs_input");
    let params = modern.calls().pop().unwrap().params;
    assert!(!params.contains("inputResponses") && !params.contains("U-2"), "{params}");
    let old = Way { tool: "old:t", ..Way::DIRECT };
    old.go(client(&agent), "").await.ok();
    let params = handshake.calls().pop().unwrap().params;
    assert!(!params.contains("elicitation"), "{params}");
    // without its answer, "cancel" above all, it would be another call
    let refused = old.go(client(&agent), r#","inputResponses":{"who":{"action":"cancel"}}"#).await;
    assert!(refused.refused("server_unavailable").to_string().contains("nothing was run"));
    assert_eq!(handshake.calls().len(), 1);
}

#[tokio::test]
async fn what_is_declared_and_answered_has_a_form_and_a_size() {
    let stage = Stage::with(&[ON]).await;
    let tenant = open(&stage, "acme").await;
    let upstream = Upstream::modern(vec![Tool::reads("t").says(Say::Echo)]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let sized = |bytes: usize| {
        Mcp::modern(&agent).declaring(&format!(r#"{{"roots":{{"x":"{}"}}}}"#, "x".repeat(bytes)))
    };
    let way = Way { tool: "up:t", ..Way::DIRECT };
    let large = way.go(sized(5000), "").await;
    assert_eq!((large.answer.status, &large.error()["code"]), (400, &json!(-32602)), "{large:?}");
    assert_eq!(sized(5000).request("tools/list", "{}").await.status, 400);
    way.go(sized(4000), "").await.ok();
    for raw in ["[]", "7", "\"x\""] {
        let outcome = way.go(client(&agent), &format!(r#","inputResponses":{raw}"#)).await;
        assert_eq!(outcome.error()["code"], -32602, "{raw}");
    }
    let doubled = r#","inputResponses":{"a":{"action":"accept","action":"decline"}}"#;
    assert_eq!(way.go(client(&agent), doubled).await.error()["code"], -32602);
    assert_eq!(upstream.counts().calls, 1);
    let refused = tenant.records(&format!("key={}&status=blocked", agent.id), 5).await;
    assert!(
        refused.iter().all(|record| !record["arguments"].to_string().contains("inputResponses")),
        "{refused:?}"
    );
}
