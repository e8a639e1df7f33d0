//! Decisions that are remembered.

use std::time::Duration;

use serde_json::{Value, json};

use super::{asked, asking, decide, redefine, state, write};
use crate::support::{Gateway, Mcp, settle};

const SOON: Duration = Duration::from_secs(2);

#[tokio::test]
async fn an_allow_is_for_one_key_tool_operation_and_definition() {
    let (stage, tenant, upstream) = asking(&[], json!([])).await;
    let other = Gateway::start(&stage.database, &[]).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let there = other.ask_as(&agent);
    let id = asked(&agent, &json!({"n": 1})).await;
    decide(&approver, &id, "allow_always").await.expect(200);
    write(&agent, &json!({"n": 2})).await.ok();
    let code = async || write(&there, &json!({"n": 3})).await.code();
    settle("ok".to_owned(), SOON, code).await;
    assert_eq!(tenant.agent().await.items("/api/v1/consent").await, [Value::Null; 0]);
    asked(&tenant.agent().await, &json!({})).await;
    Mcp::bare(&agent).run("destructive", "zoo:writer", &json!({})).await.refused("consent_pending");
    Mcp::bare(&agent).run("read", "zoo:reader", &json!({})).await.refused("consent_pending");
    let [grant] = &approver.items("/api/v1/consent/grants").await[..] else { panic!("one grant") };
    assert_eq!(
        (&grant["effect"], &grant["tool"], &grant["key_id"], &grant["consent_id"]),
        (&json!("allow"), &json!("writer"), &json!(agent.id), &json!(id))
    );
    // another definition of the tool asks again
    redefine(&tenant, &upstream).await;
    asked(&agent, &json!({"n": 4})).await;
}

#[tokio::test]
async fn a_grant_ends_when_it_is_revoked_and_when_its_granter_goes() {
    let (stage, tenant, _upstream) = asking(&[], json!([])).await;
    let other = Gateway::start(&stage.database, &[]).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let there = other.ask_as(&agent);
    let code = async || write(&there, &json!({"n": 2})).await.code();
    let id = asked(&agent, &json!({"n": 1})).await;
    decide(&approver, &id, "allow_always").await.expect(200);
    settle("ok".to_owned(), SOON, code).await;
    let grant = approver.items("/api/v1/consent/grants").await[0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/consent/grants/{grant}");
    tenant.approver().await.delete(&path).await.refused(403, "forbidden");
    agent.delete(&path).await.refused(403, "forbidden");
    tenant.agent().await.delete(&path).await.refused(404, "not_found");
    approver.delete(&path).await.expect(204);
    approver.delete(&path).await.refused(404, "not_found");
    settle("consent_pending".to_owned(), SOON, code).await;
    assert_eq!(approver.items("/api/v1/consent/grants").await, [Value::Null; 0]);
    let id = asked(&agent, &json!({"n": 3})).await;
    decide(&approver, &id, "allow_always").await.expect(200);
    settle("ok".to_owned(), SOON, code).await;
    tenant.platform.delete(&format!("/api/v1/keys/{}", approver.id)).await.expect(204);
    settle("consent_pending".to_owned(), SOON, code).await;
}

#[tokio::test]
async fn a_remembered_refusal_asks_nobody() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let id = asked(&agent, &json!({"n": 1})).await;
    let body = json!({"decision": "reject_always", "comment": "not this tool"});
    approver.post(&format!("/api/v1/consent/{id}/decision"), &body).await.expect(200);
    let refused = write(&agent, &json!({"n": 2})).await.refused("policy_denied");
    let says = "Tool 'zoo:writer' is not allowed here: a person refused it for now. The approver says: \"not this tool\"";
    assert_eq!((&refused["message"], &refused["consent_id"]), (&json!(says), &json!(id)));
}

#[tokio::test]
async fn a_clients_answer_does_not_replace_an_approvers() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let agent = tenant.key(&json!({"role": "agent", "owner": "ana"})).await;
    let same = tenant.key(&json!({"role": "approver", "owner": "ana"})).await;
    let id = asked(&agent, &json!({"n": 1})).await;
    decide(&same, &id, "allow_always").await.expect(200);
    write(&agent, &json!({"n": 2})).await.ok();
    let rule = json!([{"id": "strict", "effect": "ask",
        "ask": {"assurance": "approver", "remember": ["allow_always"]}}]);
    super::set(&tenant, rule).await;
    let id = asked(&agent, &json!({"n": 2})).await;
    decide(&same, &id, "allow_always").await.refused(403, "self_approval");
    decide(&tenant.approver().await, &id, "allow_always").await.expect(200);
    write(&agent, &json!({"n": 3})).await.ok();
}

#[tokio::test]
async fn an_allow_covers_no_riskier_calls() {
    let (stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let risky = json!({"force": true});
    let id = asked(&agent, &json!({"n": 1})).await;
    decide(&approver, &id, "allow_always").await.expect(200);
    write(&agent, &json!({"n": 2})).await.ok();
    let id = asked(&agent, &risky).await;
    assert_eq!(agent.get(&format!("/api/v1/consent/{id}")).await.expect(200)["risk"], "high");
    decide(&approver, &id, "allow_always").await.expect(200);
    for args in [&risky, &json!({"force": true, "n": 2}), &json!({"n": 2})] {
        write(&agent, args).await.ok();
    }
    let grants = approver.items("/api/v1/consent/grants").await;
    let risks: Vec<&Value> = grants.iter().map(|grant| &grant["risk"]).collect();
    assert_eq!(risks, [&json!("high"), &json!("moderate")]);
    // a grant of an older release is for calls of low risk
    let mut connection = stage.database.connect().await;
    sqlx::query("update consent_grants set risk = null").execute(&mut connection).await.unwrap();
    let later = Gateway::start(&stage.database, &[]).await;
    asked(&later.ask_as(&agent), &json!({"n": 3})).await;
}

#[tokio::test]
async fn equal_decisions_are_one_grant_and_a_key_has_not_many() {
    let (stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let pending = [asked(&agent, &json!({"n": 1})).await, asked(&agent, &json!({"n": 2})).await];
    for id in &pending {
        decide(&approver, id, "allow_always").await.expect(200);
    }
    let [grant] = &approver.items("/api/v1/consent/grants").await[..] else { panic!("one grant") };
    assert_eq!(grant["consent_id"], pending[1]);
    let mut connection = stage.database.connect().await;
    sqlx::query(
        "insert into consent_grants (tenant_id, id, principal, owner, server_id, server, tool, operation_type, pin,
             effect, assurance, request_id, granted_by, granted_owner, granted_via, expires_at, rev)
         select tenant_id, gen_random_uuid(), principal, owner, server_id, server, 'other' || n, operation_type, pin,
             effect, assurance, request_id, granted_by, granted_owner, granted_via, expires_at, rev
         from consent_grants, generate_series(1, 99) n where revoked_at is null",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    let id = asked(&agent, &json!({"force": true})).await;
    let refused = decide(&approver, &id, "reject_always").await.refused(429, "rate_limited");
    assert!(refused.contains("100 grants of a key"), "{refused}");
    assert_eq!(state(&approver, &id).await, "pending");
    // nobody else is concerned
    let id = asked(&tenant.agent().await, &json!({"n": 1})).await;
    decide(&approver, &id, "allow_always").await.expect(200);
}

#[tokio::test]
async fn the_log_says_which_answer_let_a_call_run() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let id = asked(&agent, &json!({"n": 1})).await;
    decide(&approver, &id, "allow_always").await.expect(200);
    write(&agent, &json!({"n": 2})).await.ok();
    let calls = tenant.records(&format!("type=tool_call&consent_id={id}"), 2).await;
    let decisions: Vec<&Value> = calls.iter().map(|record| &record["decision"]).collect();
    assert_eq!(decisions, [&json!("allowed"), &json!("asked")], "{calls:?}");
    // nor may the agent end what somebody else decided, although it sees it
    let [grant] = &agent.items("/api/v1/consent/grants").await[..] else { panic!("one grant") };
    let path = format!("/api/v1/consent/grants/{}", grant["id"].as_str().unwrap());
    let says = agent.delete(&path).await.refused(403, "forbidden");
    assert_eq!(says, "this grant is another person's; it takes that key, or one of role admin");
}
