//! Decisions that are remembered.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Connection;

use super::round_robin::WAITING;
use super::{asked, asking, decide, lapse, redefine, state, write};
use crate::support::{Api, Gateway, Mcp, eventually, settle};

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

/// Path of the grant that a decision about this request is remembered as.
async fn path_of(approver: &Api, id: &str) -> String {
    let grants = approver.items("/api/v1/consent/grants").await;
    let grant = grants.iter().find(|grant| grant["consent_id"] == *id).unwrap();
    format!("/api/v1/consent/grants/{}", grant["id"].as_str().unwrap())
}

/// Revokes the only grant.
async fn revoke(approver: &Api) {
    let [grant] = &approver.items("/api/v1/consent/grants").await[..] else { panic!("one grant") };
    let path = format!("/api/v1/consent/grants/{}", grant["id"].as_str().unwrap());
    approver.delete(&path).await.expect(204);
}

#[tokio::test]
async fn the_first_call_that_a_grant_lets_through_uses_the_permission_up() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let args = json!({"n": 1});
    let id = asked(&agent, &args).await;
    decide(&approver, &id, "allow_always").await.expect(200);
    write(&agent, &args).await.ok();
    settle(json!("succeeded"), SOON, || state(&approver, &id)).await;
    write(&agent, &args).await.ok();
    let calls = tenant.records(&format!("type=tool_call&status=success&consent_id={id}"), 2).await;
    assert!(calls.iter().all(|record| record["decision"] == "allowed"), "{calls:?}");
    revoke(&approver).await;
    assert_ne!(asked(&agent, &args).await, id);
    assert_eq!(upstream.counts().calls, 2);
}

#[tokio::test]
async fn the_end_of_a_grant_is_that_of_permissions_that_were_not_used() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let [first, second, once] = [json!({"n": 1}), json!({"n": 2}), json!({"n": 3})];
    let ids = [asked(&agent, &first).await, asked(&agent, &second).await];
    let other = asked(&agent, &once).await;
    for id in &ids {
        decide(&approver, id, "allow_always").await.expect(200);
    }
    decide(&approver, &other, "allow_once").await.expect(200);
    write(&agent, &json!({"n": 4})).await.ok();
    assert_eq!(state(&approver, &ids[0]).await, "granted", "arguments of another call");
    revoke(&approver).await;
    for (id, args) in ids.iter().zip([&first, &second]) {
        assert_eq!(lapse(&approver, id).await, "grant_revoked");
        assert_ne!(asked(&agent, args).await, *id);
        tenant.records(&format!("type=consent&tool=consent.lapsed&consent_id={id}"), 1).await;
    }
    // a decision about one call is no part of the grant
    write(&agent, &once).await.ok();
    assert_eq!(upstream.counts().calls, 2);
}

#[tokio::test]
async fn the_log_of_a_request_has_its_whole_story_to_the_end_of_its_grant() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, other, approver) = (tenant.agent().await, tenant.agent().await, tenant.approver().await);
    let id = asked(&agent, &json!({"n": 1})).await;
    decide(&approver, &id, "allow_always").await.expect(200);
    write(&agent, &json!({"n": 1})).await.ok();
    let path = path_of(&approver, &id).await;
    // who may not see a grant does not learn which request it came from
    other.delete(&path).await.expect(404);
    agent.delete(&path).await.expect(403);
    approver.delete(&path).await.expect(204);
    approver.delete(&path).await.expect(404);
    let acts = tenant.records("tool=consent.revoke", 4).await;
    for (key, status, consent_id) in [
        (&other, "blocked", Value::Null),
        (&agent, "blocked", json!(id)),
        (&approver, "success", json!(id)),
        (&approver, "blocked", Value::Null),
    ] {
        let is_it = |act: &&Value| act["key_id"] == key.id && act["status"] == status;
        let act = acts.iter().find(is_it).unwrap_or_else(|| panic!("{status}: {acts:?}"));
        assert_eq!(act["consent_id"], consent_id, "{act}");
    }
    let story = tenant.platform.items(&format!("/api/v1/activity?consent_id={id}&status=success")).await;
    let revoked = story.iter().find(|record| record["tool"] == "consent.revoke").unwrap();
    let shown = format!("/api/v1/activity/{}", revoked["id"].as_str().unwrap());
    let shown = tenant.platform.get(&shown).await.expect(200);
    let arguments: Value = serde_json::from_str(shown["arguments"].as_str().unwrap()).unwrap();
    assert_eq!((&shown["server"], &arguments["tool"]), (&json!("zoo"), &json!("writer")), "{shown}");
    assert_eq!(format!("/api/v1{}", arguments["path"].as_str().unwrap()), path);
    for tool in ["consent.asked", "consent.decide", "writer"] {
        assert!(story.iter().any(|record| record["tool"] == tool), "{tool}: {story:?}");
    }
}

#[tokio::test]
async fn the_end_of_a_grant_concerns_no_other() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let args = json!({"n": 1});
    let destructive = Mcp::bare(&agent).run("destructive", "zoo:writer", &args).await;
    let others = [
        asked(&agent, &json!({"force": true})).await,
        asked(&tenant.agent().await, &args).await,
        destructive.refused("consent_pending")["consent_id"].as_str().unwrap().to_owned(),
    ];
    let own = asked(&agent, &args).await;
    for id in others.iter().chain([&own]) {
        decide(&approver, id, "allow_always").await.expect(200);
    }
    approver.delete(&path_of(&approver, &own).await).await.expect(204);
    assert_eq!(state(&approver, &own).await, "lapsed");
    for (id, what) in others.iter().zip(["another risk", "another key", "another operation"]) {
        assert_eq!(state(&approver, id).await, "granted", "{what}");
    }
}

#[tokio::test]
async fn of_two_who_revoke_a_grant_at_one_moment_one_does() {
    let (stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let id = asked(&agent, &json!({})).await;
    decide(&approver, &id, "allow_always").await.expect(200);
    let path = path_of(&approver, &id).await;
    // both have found the grant when the first one goes on
    let mut hold = stage.database.connect().await;
    sqlx::raw_sql("begin; select id from consent_grants for update").execute(&mut hold).await.unwrap();
    let revoke = || {
        let (approver, path) = (approver.clone(), path.clone());
        tokio::spawn(async move { approver.delete(&path).await.status })
    };
    let (one, other) = (revoke(), revoke());
    settle(2, SOON, || stage.database.count(WAITING)).await;
    hold.close().await.unwrap();
    let (one, other) = (one.await.unwrap(), other.await.unwrap());
    assert_eq!((one.min(other), one.max(other)), (204, 404));
}

#[tokio::test]
async fn equal_calls_at_one_moment_run_by_the_grant_and_one_of_them_uses_the_permission() {
    let (stage, tenant, upstream) = asking(&[], json!([])).await;
    let replicas = [Gateway::start(&stage.database, &[]).await, Gateway::start(&stage.database, &[]).await];
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let (args, other) = (json!({"n": 1}), json!({"n": 2}));
    let id = asked(&agent, &args).await;
    decide(&approver, &id, "allow_always").await.expect(200);
    let there = replicas.each_ref().map(|replica| replica.ask_as(&agent));
    // another replica may have to hear of the grant first
    for there in &there {
        eventually("the grant there", Duration::from_secs(5), async || {
            (write(there, &other).await.code() == "ok").then_some(())
        })
        .await;
    }
    let before = upstream.counts().calls;
    let agents = [&agent, &there[0], &there[1]];
    let calls = (0..21).map(|n| write(agents[n % agents.len()], &args));
    let codes: Vec<String> =
        futures_util::future::join_all(calls).await.iter().map(|outcome| outcome.code()).collect();
    assert!(codes.iter().all(|code| code == "ok"), "{codes:?}");
    assert_eq!(upstream.counts().calls - before, 21);
    settle(json!("succeeded"), SOON, || state(&approver, &id)).await;
    tenant.records(&format!("type=consent&tool=consent.consumed&consent_id={id}"), 1).await;
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
async fn a_permission_that_was_not_used_ends_with_the_key_that_gave_it() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let args = json!({"n": 1});
    let id = asked(&agent, &args).await;
    decide(&approver, &id, "allow_once").await.expect(200);
    let of_another = asked(&agent, &json!({"n": 2})).await;
    decide(&tenant.approver().await, &of_another, "allow_once").await.expect(200);
    tenant.platform.delete(&format!("/api/v1/keys/{}", approver.id)).await.expect(204);
    assert_eq!(lapse(&agent, &id).await, "decider_revoked");
    assert_eq!(state(&agent, &of_another).await, "granted", "another key gave it");
    assert_ne!(asked(&agent, &args).await, id);
    assert_eq!(upstream.counts().calls, 0);
    tenant.records(&format!("type=consent&tool=consent.lapsed&consent_id={id}"), 1).await;
}

#[tokio::test]
async fn the_requests_of_a_revoked_key_end_with_it() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, other, approver) = (tenant.agent().await, tenant.agent().await, tenant.approver().await);
    let (waits, allowed) = (asked(&agent, &json!({"n": 1})).await, asked(&agent, &json!({"n": 2})).await);
    decide(&approver, &allowed, "allow_once").await.expect(200);
    let of_another = asked(&other, &json!({"n": 1})).await;
    let remembered = asked(&agent, &json!({"n": 3})).await;
    decide(&approver, &remembered, "allow_always").await.expect(200);
    assert_eq!(approver.items("/api/v1/consent/grants").await.len(), 1);
    tenant.platform.delete(&format!("/api/v1/keys/{}", agent.id)).await.expect(204);
    assert!(approver.items("/api/v1/consent/grants").await.is_empty(), "no call can use it");
    for id in [&waits, &allowed] {
        assert_eq!(lapse(&approver, id).await, "asker_revoked");
        tenant.records(&format!("type=consent&tool=consent.lapsed&consent_id={id}"), 1).await;
    }
    let message = decide(&approver, &waits, "allow_once").await.refused(409, "conflict");
    assert!(message.contains("lapsed"), "{message}");
    assert_eq!(state(&approver, &of_another).await, "pending", "another key asked");
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
    // also of a call that another rule would deny, but for the mode
    let enforced =
        json!({"id": "ask", "effect": "ask", "enforced": true, "ask": {"remember": ["allow_always"]}});
    super::set_mode(&tenant, "observe", json!([enforced, {"id": "no", "effect": "deny"}])).await;
    write(&agent, &json!({"n": 3})).await.ok();
    let calls = tenant.records(&format!("type=tool_call&consent_id={id}"), 3).await;
    assert_eq!(calls[0]["decision"], "would_deny", "{calls:?}");
    // nor may the agent end what somebody else decided, although it sees it
    let [grant] = &agent.items("/api/v1/consent/grants").await[..] else { panic!("one grant") };
    let path = format!("/api/v1/consent/grants/{}", grant["id"].as_str().unwrap());
    let says = agent.delete(&path).await.refused(403, "forbidden");
    assert_eq!(says, "this grant is another person's; it takes that key, or one of role admin");
}

#[tokio::test]
async fn a_request_that_waits_lapses_once_a_grant_lets_its_call_through() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let args = [json!({"n": 1}), json!({"n": 2}), json!({"n": 3})];
    let [remembered, waits, other] =
        [asked(&agent, &args[0]).await, asked(&agent, &args[1]).await, asked(&agent, &args[2]).await];
    decide(&approver, &remembered, "allow_always").await.expect(200);
    assert_eq!(state(&approver, &waits).await, "pending", "until its call is repeated");
    write(&agent, &args[1]).await.ok();
    assert_eq!(lapse(&approver, &waits).await, "allowed_by_grant");
    tenant.records(&format!("type=consent&tool=consent.lapsed&consent_id={waits}"), 1).await;
    // who let the call run is found with the grant
    tenant.records(&format!("type=tool_call&status=success&consent_id={remembered}"), 1).await;
    decide(&approver, &waits, "allow_once").await.refused(409, "conflict");
    // it became no permission: without the grant the call asks
    revoke(&approver).await;
    assert_ne!(asked(&agent, &args[1]).await, waits);
    assert_eq!((state(&approver, &other).await, upstream.counts().calls), (json!("pending"), 1));
}
