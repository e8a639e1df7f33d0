//! The end of a turn, and what it reaches.

use std::time::Duration;

use serde_json::json;

use super::{asked, asking, asking_of, decide, set_mode, write};
use crate::support::upstream::Say;
use crate::support::{Api, Gateway, Mcp, Tool, eventually};

const SOON: Duration = Duration::from_secs(5);

/// Ends the turn of an agent, by its request to read.
async fn end_turn(agent: &Api, approver: &Api) {
    let refused = Mcp::bare(agent).run("read", "zoo:reader", &json!({})).await.refused("consent_pending");
    decide(approver, refused["consent_id"].as_str().unwrap(), "cancel_turn").await.expect(200);
}

#[tokio::test]
async fn a_fence_holds_for_calls_that_a_grant_allows_and_for_no_others() {
    let free = json!([{"id": "free", "effect": "allow", "match": {"tool": "zoo:mild"}}]);
    let (_stage, tenant, upstream) = asking(&[], free).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let id = asked(&agent, &json!({"n": 1})).await;
    decide(&approver, &id, "allow_always").await.expect(200);
    write(&agent, &json!({"n": 2})).await.ok();
    end_turn(&agent, &approver).await;
    write(&agent, &json!({"n": 3})).await.refused("turn_cancelled");
    Mcp::bare(&agent).run("write", "zoo:mild", &json!({})).await.ok();
    assert_eq!(upstream.counts().calls, 2);
    // where nobody would be asked without the grant, it does not count
    set_mode(&tenant, "observe", json!([])).await;
    write(&agent, &json!({"n": 4})).await.ok();
}

#[tokio::test]
async fn calls_under_way_end_with_their_turn_on_every_replica() {
    let free = json!([{"id": "free", "effect": "allow", "match": {"tool": "zoo:slow*"}}]);
    let tools = vec![
        Tool::writes("slow").says(Say::Hang),
        Tool::reads("slow_reader").says(Say::Hang),
        Tool::reads("reader"),
    ];
    let (stage, tenant, upstream) = asking_of(&[], free, tools).await;
    let other = Gateway::start(&stage.database, &[]).await;
    let (agent, approver, bystander) = (tenant.agent().await, tenant.approver().await, tenant.agent().await);
    let there = other.ask_as(&agent);
    let run =
        async |api: &Api, variant: &str, tool: &str| Mcp::bare(api).run(variant, tool, &json!({})).await;
    let mut spared = std::pin::pin!(run(&bystander, "write", "zoo:slow"));
    let ended = async {
        tokio::join!(
            run(&agent, "write", "zoo:slow"),
            run(&agent, "read", "zoo:slow_reader"),
            run(&there, "write", "zoo:slow"),
        )
    };
    let cancel = async {
        eventually("the calls under way", SOON, async || (upstream.counts().calls == 4).then_some(())).await;
        end_turn(&agent, &approver).await;
    };
    let ((here, read, elsewhere), ()) = tokio::select! {
        both = async { tokio::join!(ended, cancel) } => both,
        _ = &mut spared => panic!("another key is not concerned"),
    };
    for outcome in [here, read, elsewhere] {
        let says = "The call was sent and may have run, but the user stopped this turn; no further calls until the \
                    next instruction. Calls that need permission are refused for 30 s";
        assert_eq!(outcome.refused("turn_cancelled")["message"], says);
    }
    let records = tenant.records("status=cancelled", 3).await;
    assert!(records.iter().all(|record| record["error_code"] == "turn_cancelled"), "{records:?}");
}

#[tokio::test]
async fn every_request_that_ends_with_a_turn_has_its_record() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let id = asked(&agent, &json!({"n": 1})).await;
    end_turn(&agent, &approver).await;
    let steps = tenant.records(&format!("type=consent&consent_id={id}"), 2).await;
    let ended = steps.iter().find(|step| step["tool"] == "consent.cancelled").expect("a record");
    assert_eq!((&ended["server"], &ended["key_id"]), (&json!("zoo"), &json!(approver.id)));
}
