//! A refusal of one call beside a remembered decision that lets its tool run.

use std::time::Duration;

use serde_json::json;

use super::operated::shift;
use super::{asked, asking, decide, write};
use crate::support::{Gateway, settle};

const SOON: Duration = Duration::from_secs(2);

#[tokio::test]
async fn a_refused_call_stays_refused_as_long_as_the_grant_holds() {
    let (stage, tenant, upstream) = asking(&[], json!([])).await;
    let other = Gateway::start(&stage.database, &[]).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let there = other.ask_as(&agent);
    let [allowed, refused] = [json!({"n": 1}), json!({"n": 2})];
    let (first, second) = (asked(&agent, &allowed).await, asked(&agent, &refused).await);
    decide(&approver, &first, "allow_always").await.expect(200);
    decide(&approver, &second, "reject_once").await.expect(200);
    write(&agent, &json!({"n": 3})).await.ok();
    let code = async || write(&there, &json!({"n": 4})).await.code();
    settle("ok".to_owned(), SOON, code).await;
    for api in [&agent, &there] {
        let told = write(api, &refused).await.refused("consent_denied");
        assert_eq!(told["consent_id"], json!(second), "{told}");
    }
    // also once the request is over, since the grant was there before the refusal
    shift(&stage.database, &second, "expires_at = now() - interval '1 second'").await;
    write(&agent, &refused).await.refused("consent_denied");
    tenant.records(&format!("type=tool_call&consent_id={second}&decision=denied&status=blocked"), 3).await;
    assert_eq!(upstream.counts().calls, 2);
}

#[tokio::test]
async fn a_tool_that_is_allowed_after_a_refusal_runs_once_the_refused_request_is_over() {
    let (stage, tenant, upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let [allowed, refused] = [json!({"n": 1}), json!({"n": 2})];
    let (first, second) = (asked(&agent, &allowed).await, asked(&agent, &refused).await);
    decide(&approver, &second, "reject_once").await.expect(200);
    decide(&approver, &first, "allow_always").await.expect(200);
    write(&agent, &refused).await.refused("consent_denied");
    shift(&stage.database, &second, "expires_at = now() - interval '1 second'").await;
    write(&agent, &refused).await.ok();
    assert_eq!(upstream.counts().calls, 1);
}

#[tokio::test]
async fn a_tool_that_is_allowed_once_more_after_a_refusal_runs() {
    let (stage, tenant, upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let refused = json!({"n": 2});
    let (first, second) = (asked(&agent, &json!({"n": 1})).await, asked(&agent, &refused).await);
    decide(&approver, &first, "allow_always").await.expect(200);
    decide(&approver, &second, "reject_once").await.expect(200);
    shift(&stage.database, &second, "expires_at = now() - interval '1 second'").await;
    write(&agent, &refused).await.refused("consent_denied");
    // riskier calls ask, and who remembers their answer allows the others as well
    let risky = asked(&agent, &json!({"force": true})).await;
    decide(&approver, &risky, "allow_always").await.expect(200);
    write(&agent, &refused).await.ok();
    assert_eq!(upstream.counts().calls, 1);
}

#[tokio::test]
async fn who_ends_a_turn_is_not_quoted_with_the_words_of_others() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let (allowed, waits) = (asked(&agent, &json!({"n": 1})).await, asked(&agent, &json!({"n": 2})).await);
    let body = json!({"decision": "allow_once", "comment": "fine with me"});
    let granted = approver.post(&format!("/api/v1/consent/{allowed}/decision"), &body).await.expect(200);
    let approver_owner = granted["decided_by"].clone();
    decide(&tenant.approver().await, &waits, "cancel_turn").await.expect(200);
    // who had allowed the one that ended along stays who decided it, with the words of that decision
    let shown = approver.get(&format!("/api/v1/consent/{allowed}")).await.expect(200);
    let of = ["state", "decided_by", "comment"].map(|name| shown[name].clone());
    assert_eq!(of, [json!("cancelled"), json!(approver_owner), json!("fine with me")], "{shown}");
    let told = write(&agent, &json!({"n": 1})).await.refused("turn_cancelled").to_string();
    assert!(!told.contains("fine with me"), "{told}");
}
