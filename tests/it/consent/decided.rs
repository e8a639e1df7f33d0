//! Answers, and what becomes of the call.

use std::time::Duration;

use serde_json::{Value, json};

use super::{asked, asking, asking_of, decide, lapse, redefine, state, write};
use crate::support::upstream::Say;
use crate::support::{Mcp, Tool, cli, settle};

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn an_allowed_call_runs_exactly_once() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let args = json!({"path": "/a", "password": "hunter2hunter2"});
    let refused = write(&agent, &args).await.refused("consent_pending");
    let id = refused["consent_id"].as_str().unwrap();
    let says = refused["message"].as_str().unwrap();
    assert!(says.starts_with(&format!("Waiting for approval ({id}, until ")), "{says}");
    // the same call, however it is spelt, is the same request
    let spelt = r#"{"name":"zoo:writer","args":{ "password":"hunter2hunter2", "p\u0061th":"\/a"}}"#;
    let again = Mcp::bare(&agent).call_raw("call_tool_write", spelt).await.refused("consent_pending");
    assert_eq!(again["consent_id"], id);
    let shown = &approver.items("/api/v1/consent?state=pending&tool=zoo:writer").await[..];
    let [shown] = shown else { panic!("{shown:?}") };
    assert_eq!(
        (&shown["id"], &shown["server"], &shown["tool"]),
        (&json!(id), &json!("zoo"), &json!("writer"))
    );
    assert_eq!((&shown["key_id"], &shown["assurance"]), (&json!(agent.id), &json!("client")));
    assert!(shown["arguments"].as_str().unwrap().contains("/a"), "{shown}");
    assert!(!shown.to_string().contains("hunter2"), "{shown}");
    let decided = decide(&approver, id, "allow_once").await.expect(200);
    assert_eq!((&decided["state"], &decided["decided_via"]), (&json!("granted"), &json!("rest")));
    assert_eq!(upstream.counts().calls, 0, "a decision runs nothing");
    write(&agent, &args).await.ok();
    settle(json!("succeeded"), SOON, || state(&approver, id)).await;
    let next = asked(&agent, &args).await;
    assert_ne!(next, id, "a permission is used up");
    assert_eq!(upstream.counts().calls, 1);
    let calls = tenant.records(&format!("type=tool_call&consent_id={id}"), 3).await;
    let run = calls.iter().find(|call| call["status"] == "success").unwrap();
    assert_eq!(run["decision"], "asked");
    assert!(run["wait_ms"].as_f64().unwrap() > 0.0, "{run}");
    let steps = tenant.records(&format!("type=consent&consent_id={id}"), 4).await;
    let mut steps: Vec<&Value> = steps.iter().map(|step| &step["tool"]).collect();
    steps.sort_by_key(|step| step.to_string());
    let expected = ["consent.asked", "consent.consumed", "consent.decide", "consent.succeeded"];
    assert_eq!(steps, expected.map(Value::from).iter().collect::<Vec<_>>());
    let listed = cli(&tenant.admin().await, &["activity", "list", "--type", "consent"]).await.ok().out;
    let decided = listed.lines().find(|line| line.contains("consent.decide")).unwrap();
    assert!(
        decided.contains("  zoo ") && decided.contains("consent.decide (writer: allow_once)"),
        "{listed}"
    );
}

#[tokio::test]
async fn other_arguments_are_another_call() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let id = asked(&agent, &json!({"n": 1})).await;
    decide(&approver, &id, "allow_once").await.expect(200);
    for (api, args) in [(&agent, json!({"n": 2})), (&agent, json!({"n": "1"})), (&agent, json!({"n": 1.0}))] {
        assert_ne!(asked(api, &args).await, id, "{args}");
    }
    let other = tenant.agent().await;
    assert_ne!(asked(&other, &json!({"n": 1})).await, id, "another key");
    let variant = Mcp::bare(&agent).run("destructive", "zoo:writer", &json!({"n": 1})).await;
    assert_ne!(variant.refused("consent_pending")["consent_id"], json!(id), "another variant");
    assert_eq!(upstream.counts().calls, 0);
    write(&agent, &json!({"n": 1})).await.ok();
    assert_eq!(upstream.counts().calls, 1);
}

#[tokio::test]
async fn a_refused_call_is_refused_at_every_door() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    let agent = tenant.agent().await;
    let eva = tenant.key(&json!({"role": "approver", "owner": "eva"})).await;
    let id = asked(&agent, &json!({})).await;
    let decided = eva
        .post(
            &format!("/api/v1/consent/{id}/decision"),
            &json!({"decision": "reject_once", "comment": "not on a Friday"}),
        )
        .await
        .expect(200);
    assert_eq!((&decided["comment"], &decided["decided_by"]), (&json!("not on a Friday"), &json!("eva")));
    let says =
        format!("Refused by eva ({id}). Do not repeat this call. The approver says: \"not on a Friday\"");
    let refused = write(&agent, &json!({})).await.refused("consent_denied");
    assert_eq!((&refused["message"], &refused["approver_says"]), (&json!(says), &json!("not on a Friday")));
    let body = json!({"tool_variant": "call_tool_write", "name": "zoo:writer"});
    let refused = agent.post("/api/v1/tools/call", &body).await;
    assert_eq!(refused.refused(403, "consent_denied"), says);
    let error = &refused.json()["error"];
    assert_eq!((&error["consent_id"], &error["approver_says"]), (&json!(id), &json!("not on a Friday")));
    cli(&agent, &["call", "tool-write", "zoo:writer"]).await.failed(3, &says);
    cli(&agent, &["call", "tool-read", "zoo:reader"]).await.failed(4, "Waiting for approval");
    assert_eq!(upstream.counts().calls, 0);
}

#[tokio::test]
async fn a_failed_call_uses_its_permission_up_too() {
    let failing = r#"{"content":[{"type":"text","text":"no"}],"isError":true}"#;
    let tools = vec![Tool { say: Say::Result(failing.to_owned()), ..Tool::reads("failing") }];
    let (_stage, tenant, _upstream) = asking_of(&[], json!([]), tools).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let client = Mcp::bare(&agent);
    let read = async || client.run("read", "zoo:failing", &json!({})).await;
    let id = read().await.refused("consent_pending")["consent_id"].as_str().unwrap().to_owned();
    decide(&approver, &id, "allow_once").await.expect(200);
    assert_eq!(read().await.result()["isError"], true);
    settle(json!("failed"), SOON, || state(&approver, &id)).await;
    read().await.refused("consent_pending");
}

#[tokio::test]
async fn an_answer_about_another_definition_is_worth_nothing() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let (id, pending) = (asked(&agent, &json!({"n": 1})).await, asked(&agent, &json!({"n": 2})).await);
    decide(&approver, &id, "allow_once").await.expect(200);
    redefine(&tenant, &upstream).await;
    let refused = write(&agent, &json!({"n": 1})).await.refused("consent_lapsed");
    let says =
        format!("'zoo:writer' changed after approval; approval discarded ({id}). The same call asks again");
    assert_eq!((&refused["message"], &refused["consent_id"]), (&json!(says), &json!(id)));
    assert_eq!(lapse(&approver, &id).await, "tool_changed");
    assert_ne!(asked(&agent, &json!({"n": 1})).await, id);
    // an open question about the old definition goes, too
    assert_ne!(asked(&agent, &json!({"n": 2})).await, pending);
    assert_eq!(lapse(&approver, &pending).await, "tool_changed");
    assert_eq!(upstream.counts().calls, 0);
}

#[tokio::test]
async fn secrets_stand_in_no_row() {
    let (stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let args =
        json!({"token": secret, "url": format!("https://u:{secret}@example.com/"), "note": "plain words"});
    let id = asked(&agent, &args).await;
    let path = format!("/api/v1/consent/{id}/decision");
    let body = json!({"decision": "reject_once", "comment": format!("has {secret}")});
    approver.post(&path, &body).await.expect(200);
    let mut connection = stage.database.connect().await;
    let rows: Vec<String> = sqlx::query_scalar("select to_jsonb(c)::text from consent_requests c")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    let refused = write(&agent, &args).await.refused("consent_denied");
    let says = refused["approver_says"].as_str().unwrap();
    assert!(says.starts_with("has ") && !refused.to_string().contains("ghp_"), "{refused}");
    assert!(rows.len() == 1 && rows[0].contains("plain words"), "{rows:?}");
    assert!(!rows[0].contains(secret) && !rows[0].contains("ghp_"), "{rows:?}");
}
