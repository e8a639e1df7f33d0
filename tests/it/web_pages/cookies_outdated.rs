//! Cookies of a call whose server or key is not what the call has read any more.

use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::task::JoinHandle;

use super::cookies::{call, rows, sent, site};
use super::execution::{FLIGHTS, SOON, allowed, shop_with, thanks};
use super::form_site::Reply;
use crate::support::{Api, Gateway, HELD_RECORDS, Mcp, Outcome, Stage, settle};

#[tokio::test]
async fn a_replica_that_is_behind_its_servers_row_sends_and_keeps_none() {
    let stage = Stage::start().await;
    let site = site(&["session=s; Path=/"]).await;
    site.put("GET /", Reply::page(FLIGHTS));
    site.put("GET /flights", thanks().with("set-cookie", "session=other; Path=/"));
    let settings = json!({"execute": "policy", "cookies": "kept"});
    let tenant = shop_with(&stage, &site, &["/list", "/"], settings).await;
    let (agent, admin) = (tenant.agent().await, tenant.admin().await);
    // a call that reads waits for nothing before it is sent
    let tools = admin.items("/api/v1/servers/shop/tools").await;
    let pin = tools.iter().find(|tool| tool["name"] == "search_flights").unwrap()["pin"].clone();
    let reads = json!({"pin": pin, "annotations": {"readOnlyHint": true}});
    let path = "/api/v1/servers/shop/tools/search_flights/override";
    admin.ask(reqwest::Method::PUT, path, Some(&reads)).await.expect(200);
    call(&agent).await.ok();
    site.put("POST /theme", thanks().with("set-cookie", "session=other; Path=/"));
    site.take();

    // as if another replica had changed the server, and this one did not know yet
    let change = async |by: i32| {
        let statement = format!("update servers set version = version + {by}");
        stage.database.connect().await.execute(AssertSqlSafe(statement)).await.unwrap();
    };
    change(1).await;
    call(&agent).await.ok();
    let args = json!({"from": "Bonn", "to": "Rome", "day": "2026-12-24"});
    Mcp::bare(&agent).run("read", "shop:search_flights", &args).await.ok();
    assert_eq!(sent(&site), [""; 4]);
    change(-1).await;
    site.put("POST /theme", thanks());
    call(&agent).await.ok();
    assert_eq!(sent(&site), ["session=s"; 2], "those of before are still there");
}

/// Calls the tool at a replica of its own, where the call has read its cookies and waits for its record.
async fn waiting(stage: &Stage, other: &Gateway, agent: &Api) -> (PgConnection, JoinHandle<Outcome>) {
    let held = stage.database.hold_records("set_theme").await;
    let there = other.ask_as(agent);
    let running = tokio::spawn(async move { call(&there).await });
    settle(1, SOON, || stage.database.count(HELD_RECORDS)).await;
    (held, running)
}

#[tokio::test]
async fn an_allowed_call_takes_none_along_if_its_server_or_key_changes_before_it_is_sent() {
    for (change, left) in [("key", 0), ("server", 1)] {
        let stage = Stage::start().await;
        let other = Gateway::start(&stage.database, &[]).await;
        let site = site(&["session=s; Path=/"]).await;
        let tenant = shop_with(&stage, &site, &["/list"], json!({"cookies": "kept"})).await;
        let (agent, admin, approver) = (tenant.agent().await, tenant.admin().await, tenant.approver().await);
        let args = json!({"color": "x"});
        allowed(&tenant, &agent, "shop:set_theme", &args).await.1.ok();
        assert_eq!(rows(&stage).await, 1);
        let asked = call(&agent).await.refused("consent_pending");
        let decision = format!("/api/v1/consent/{}/decision", asked["consent_id"].as_str().unwrap());
        approver.post(&decision, &json!({"decision": "allow_once"})).await.expect(200);

        let (held, running) = waiting(&stage, &other, &agent).await;
        site.take();
        match change {
            "key" => {
                let owner = json!({"owner": "somebody else"});
                tenant.platform.patch(&format!("/api/v1/keys/{}", agent.id), &owner).await.expect(200)
            }
            _ => admin.patch("/api/v1/servers/shop", &json!({"disclosure": "always"})).await.expect(200),
        };
        assert!(!running.is_finished());
        held.close().await.unwrap();
        running.await.unwrap().ok();
        // a listing may come in between: it sends none
        assert_eq!(site.count("POST"), 1, "{change}");
        assert!(sent(&site).iter().all(String::is_empty), "{change}");
        assert_eq!(rows(&stage).await, left, "{change}: what the call got is not kept");
    }
}

#[tokio::test]
async fn a_call_whose_secrets_change_before_it_is_sent_goes_without_those_of_another_login() {
    let stage = Stage::start().await;
    let other = Gateway::start(&stage.database, &[]).await;
    let site = site(&["session=s; Path=/"]).await;
    let settings = json!({"execute": "policy", "cookies": "kept"});
    let tenant = shop_with(&stage, &site, &["/list"], settings).await;
    let agent = tenant.agent().await;
    call(&agent).await.ok();
    let (held, running) = waiting(&stage, &other, &agent).await;
    site.take();
    let secrets = json!({"field_secrets": {"pin": "opaque-pin"}});
    tenant.admin().await.patch("/api/v1/servers/shop", &secrets).await.expect(200);
    held.close().await.unwrap();
    running.await.unwrap().ok();
    assert_eq!(site.count("POST"), 1);
    assert!(sent(&site).iter().all(String::is_empty));
    assert_eq!(rows(&stage).await, 0);
}
