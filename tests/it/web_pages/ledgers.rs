//! Ledgers that somebody deleted, whole or in part, are noticed where calls are looked at.

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Executor};

use super::execution::{SOON, ledger, shop_with, thanks, theme};
use super::form_site::{FormSite, Reply};
use crate::support::{Mcp, Stage, cli, settle};

#[tokio::test]
async fn a_ledger_that_is_gone_is_noticed() {
    let stage = Stage::start().await;
    let site =
        FormSite::start(&[("GET /list", Reply::page(&theme("t", ""))), ("POST /theme", thanks())]).await;
    let tenant = shop_with(&stage, &site, &["/list"], json!({"execute": "policy"})).await;
    let agent = tenant.agent().await;
    let call = async |color: &str| {
        Mcp::bare(&agent).run("destructive", "shop:set_theme", &json!({"color": color})).await
    };
    let inspect = async || -> Value {
        let result = Mcp::bare(&agent).run("read", "shop:inspect_provenance", &json!({})).await.ok();
        result["structuredContent"]["calls"].clone()
    };
    let seen = |calls: &Value| -> Vec<(Value, usize)> {
        let row = |call: &Value| (call["intact"].clone(), call["rows"].as_array().unwrap().len());
        calls.as_array().unwrap().iter().map(row).collect()
    };
    call("red").await.ok();
    let record = tenant.records("type=tool_call&tool=set_theme&status=success", 1).await.remove(0);
    let calls = inspect().await;
    assert_eq!((seen(&calls), &calls[0]["id"]), (vec![(json!(true), 3)], &record["id"]), "{calls}");
    // nothing was sent, and nothing says that there was a ledger
    call("").await.result();
    let refused = tenant.records("type=tool_call&tool=set_theme&status=upstream_error", 1).await.remove(0);
    assert_eq!(ledger(&tenant, &refused["id"]).await["intact"], Value::Null);
    assert_eq!(seen(&inspect().await), [(json!(true), 3)]);

    for (condition, left) in [("layer = 'outcome'", 2), ("true", 0)] {
        let deletion = format!("delete from web_provenance where {condition}");
        stage.database.connect().await.execute(AssertSqlSafe(deletion)).await.unwrap();
        let shown = ledger(&tenant, &record["id"]).await;
        assert_eq!(
            (&shown["intact"], shown["items"].as_array().unwrap().len()),
            (&json!(false), left),
            "{shown}"
        );
        let calls = inspect().await;
        assert_eq!((seen(&calls), &calls[0]["id"]), (vec![(json!(false), left)], &record["id"]), "{calls}");
    }
    // without a record, nothing says whether a ledger is whole
    call("blue").await.ok();
    tenant.records("type=tool_call&tool=set_theme&status=success", 2).await;
    stage.database.connect().await.execute("delete from activity").await.unwrap();
    assert_eq!(seen(&inspect().await), [(Value::Null, 3)]);
    // calls of another key are none of its business
    let other =
        Mcp::bare(&tenant.agent().await).run("read", "shop:inspect_provenance", &json!({})).await.ok();
    assert_eq!(other["structuredContent"]["calls"], json!([]));
}

#[tokio::test]
async fn a_ledger_that_is_gone_is_noticed_whatever_became_of_its_call_and_its_server() {
    let stage = Stage::with(&[("MCPPROXY__LIMITS__RETENTION_INTERVAL_S", "1")]).await;
    let site =
        FormSite::start(&[("GET /list", Reply::page(&theme("t", ""))), ("POST /theme", thanks())]).await;
    let tenant = shop_with(&stage, &site, &["/list"], json!({"execute": "policy"})).await;
    let client = Mcp::bare(&tenant.agent().await);
    let call =
        async |color: &str| client.run("destructive", "shop:set_theme", &json!({"color": color})).await;
    call("red").await.ok();
    site.put("POST /theme", Reply::bare(500));
    assert_eq!(call("red").await.result()["structuredContent"]["class"], "site_error");
    // nothing was sent, and nothing is gone
    call("").await.result();
    let records = tenant.records("type=tool_call&tool=set_theme", 3).await;
    let intact = async || {
        let mut all = Vec::new();
        for record in &records {
            all.push(ledger(&tenant, &record["id"]).await["intact"].clone());
        }
        all
    };
    assert_eq!(intact().await, [Value::Null, json!(true), json!(true)]);

    tenant.admin().await.delete("/api/v1/servers/shop").await.expect(204);
    settle(0, SOON, || stage.database.count("select count(*) from servers")).await;
    assert_eq!(intact().await, [Value::Null, json!(true), json!(true)], "a ledger outlives its server");
    stage.database.connect().await.execute("delete from web_provenance").await.unwrap();
    assert_eq!(intact().await, [Value::Null, json!(false), json!(false)]);
    let id = records[1]["id"].as_str().unwrap();
    let shown = cli(&tenant.auditor().await, &["activity", "show", id, "--provenance"]).await.ok().out;
    assert!(shown.contains("BROKEN") && shown.contains("gone"), "{shown}");
}
