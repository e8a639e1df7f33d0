//! Cookies that a key keeps at a server from one call to the next.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Executor;
use tokio::sync::watch;

use super::execution::{SOON, ledger, shop_with, thanks, theme};
use super::form_site::{FormSite, Reply};
use crate::support::{Api, Gateway, Mcp, Outcome, Stage, Tenant, eventually, settle};

/// Name of a session, as sites make them.
const SESSION: &str = "8f3a9c1b2d4e5f60718293a4";

pub(super) async fn call(api: &Api) -> Outcome {
    Mcp::bare(api).run("destructive", "shop:set_theme", &json!({"color": "x"})).await
}

/// Starts a site that sets these cookies once its form is sent.
pub(super) async fn site(cookies: &[&str]) -> FormSite {
    let text = format!("<title>Thanks</title><p role=status>Thank you, {SESSION}");
    let answer = cookies.iter().fold(Reply::page(&text), |reply, cookie| reply.with("set-cookie", cookie));
    FormSite::start(&[("GET /list", Reply::page(&theme("t", ""))), ("POST /theme", answer)]).await
}

async fn shop(stage: &Stage, site: &FormSite) -> Tenant {
    shop_with(stage, site, &["/list"], json!({"execute": "policy", "cookies": "kept"})).await
}

/// Returns the cookies of the requests since the last time, each sorted.
pub(super) fn sent(site: &FormSite) -> Vec<String> {
    let sorted = |text: &str| {
        let mut all: Vec<&str> = text.split("; ").collect();
        all.sort_unstable();
        all.join("; ")
    };
    site.take().iter().map(|request| sorted(request.header("cookie"))).collect()
}

pub(super) async fn rows(stage: &Stage) -> i64 {
    stage.database.count("select count(*) from web_cookies").await
}

#[tokio::test]
async fn they_are_sent_by_later_calls_of_their_key_on_every_replica() {
    let stage = Stage::with(&[("MCPPROXY__TELEMETRY__LOG_FILTER", "trace")]).await;
    let other = Gateway::start(&stage.database, &[]).await;
    let session = format!("session={SESSION}; Path=/; HttpOnly");
    let site = site(&[session.as_str(), "theme=dark; Max-Age=3600"]).await;
    let tenant = shop(&stage, &site).await;
    let (agent, colleague) = (tenant.agent().await, tenant.agent().await);
    let first = call(&agent).await.ok();
    assert_eq!(sent(&site), ["", ""]);
    let own = format!("session={SESSION}; theme=dark");
    let second = call(&other.ask_as(&agent)).await.ok();
    // a listing may come in between: it sends none
    let of_calls = || sent(&site).into_iter().filter(|cookies| !cookies.is_empty()).collect::<Vec<_>>();
    assert_eq!(of_calls(), [own.as_str(), own.as_str()]);
    call(&colleague).await.ok();
    assert_eq!(of_calls(), [""; 0], "another key has none");
    call(&agent).await.ok();
    assert_eq!(of_calls(), [own.as_str(), own.as_str()]);
    assert_eq!(rows(&stage).await, 2);

    // what the site knows the caller by is shown to nobody
    let mut shown: Vec<Value> = vec![first, second];
    for record in tenant.records("type=tool_call&tool=set_theme", 4).await {
        shown.push(ledger(&tenant, &record["id"]).await);
        shown.push(record);
    }
    shown.push(tenant.admin().await.get("/api/v1/servers/shop").await.expect(200));
    for value in shown {
        assert!(!value.to_string().contains(SESSION), "{value}");
    }
    let hex: String = SESSION.bytes().map(|byte| format!("{byte:02x}")).collect();
    for (table, row) in stage.database.rows().await {
        assert!(!row.contains(SESSION) && !row.contains(&hex), "{table}: {row}");
    }
    assert!(!stage.gateway.log().contains(SESSION), "the log");
}

#[tokio::test]
async fn without_the_setting_they_end_with_their_call() {
    let stage = Stage::start().await;
    let site = site(&["session=s"]).await;
    site.put("GET /list", Reply::page(&theme("t", "")).with("set-cookie", "visit=v; Path=/"));
    let tenant = shop_with(&stage, &site, &["/list"], json!({"execute": "policy"})).await;
    let agent = tenant.agent().await;
    for _ in 0..2 {
        call(&agent).await.ok();
        assert_eq!(sent(&site), ["", "visit=v"]);
    }
    assert_eq!(rows(&stage).await, 0);
}

#[tokio::test]
async fn calls_at_the_same_time_keep_the_cookies_of_each() {
    let stage = Stage::start().await;
    let site = site(&[]).await;
    let (open, gate) = watch::channel(false);
    site.put("GET /fonts", Reply::page(&theme("t", "").replace("theme", "font")));
    for (path, cookie) in [("POST /theme", "a=1; Path=/"), ("POST /font", "b=1; Path=/")] {
        site.put(path, thanks().with("set-cookie", cookie).behind(gate.clone()));
    }
    let settings = json!({"execute": "policy", "cookies": "kept"});
    let tenant = shop_with(&stage, &site, &["/list", "/fonts"], settings).await;
    let agent = tenant.agent().await;
    let (one, two) = (agent.clone(), agent.clone());
    let one = tokio::spawn(async move { call(&one).await.ok() });
    let two = tokio::spawn(async move {
        Mcp::bare(&two).run("destructive", "shop:set_font", &json!({"color": "x"})).await.ok()
    });
    settle(2, SOON, || async { site.count("POST") }).await;
    open.send(true).unwrap();
    one.await.unwrap();
    two.await.unwrap();
    site.take();
    call(&agent).await.ok();
    assert_eq!(sent(&site), ["a=1; b=1", "a=1; b=1"]);
}

#[tokio::test]
async fn they_go_with_their_key_their_pages_their_server_and_their_tenant() {
    let stage = Stage::start().await;
    let site = site(&["session=s; Path=/"]).await;
    let tenant = shop(&stage, &site).await;
    let admin = tenant.admin().await;
    let (agent, gone) = (tenant.agent().await, tenant.agent().await);
    call(&agent).await.ok();
    call(&gone).await.ok();
    assert_eq!(rows(&stage).await, 2);
    // a call that ends after its key leaves none behind
    let (open, gate) = watch::channel(false);
    site.put("POST /theme", thanks().with("set-cookie", "session=new; Path=/").behind(gate));
    site.take();
    let late = gone.clone();
    let late = tokio::spawn(async move { call(&late).await });
    settle(1, SOON, || async { site.count("POST") }).await;
    admin.delete(&format!("/api/v1/keys/{}", gone.id)).await.expect(204);
    assert_eq!(rows(&stage).await, 1);
    open.send(true).unwrap();
    drop(late.await.unwrap());
    tenant.records("type=tool_call&tool=set_theme&status=success", 3).await;
    assert_eq!(rows(&stage).await, 1);

    // a setting that has nothing to do with them leaves them
    let path = "/api/v1/servers/shop";
    admin.patch(path, &json!({"disclosure": "always"})).await.expect(200);
    assert_eq!(rows(&stage).await, 1);
    admin.patch(path, &json!({"cookies": "ephemeral"})).await.expect(200);
    assert_eq!(rows(&stage).await, 0);
    for end in ["secrets", "owner", "pages", "server", "tenant"] {
        kept_again(&admin, &site).await;
        call_once_listed(&agent).await;
        assert_eq!(rows(&stage).await, 1, "{end}");
        match end {
            "secrets" => {
                drop(admin.patch(path, &json!({"field_secrets": {"pin": "opaque-pin"}})).await.expect(200));
            }
            "owner" => {
                let key = format!("/api/v1/keys/{}", agent.id);
                tenant.platform.patch(&key, &json!({"name": "renamed"})).await.expect(200);
                assert_eq!(rows(&stage).await, 1);
                tenant.platform.patch(&key, &json!({"owner": "somebody else"})).await.expect(200);
            }
            "pages" => drop(admin.patch(path, &json!({"pages": [site.at("/list?other")]})).await.expect(200)),
            "server" => drop(admin.delete(path).await.expect(204)),
            _ => drop(stage.platform().delete("/api/v1/tenants/acme").await.expect(204)),
        }
        assert_eq!(rows(&stage).await, 0, "{end}");
    }
}

#[tokio::test]
async fn a_call_that_ends_after_a_change_of_its_server_keeps_none() {
    let stage = Stage::start().await;
    let site = site(&[]).await;
    let tenant = shop(&stage, &site).await;
    let (admin, agent) = (tenant.admin().await, tenant.agent().await);
    let (open, gate) = watch::channel(false);
    site.put("POST /theme", thanks().with("set-cookie", "session=late; Path=/").behind(gate));
    let late = agent.clone();
    let late = tokio::spawn(async move { call(&late).await.ok() });
    settle(1, SOON, || async { site.count("POST") }).await;
    for cookies in ["ephemeral", "kept"] {
        admin.patch("/api/v1/servers/shop", &json!({"cookies": cookies})).await.expect(200);
    }
    open.send(true).unwrap();
    late.await.unwrap();
    tenant.records("type=tool_call&tool=set_theme&status=success", 1).await;
    assert_eq!(rows(&stage).await, 0);
}

/// Makes `shop` a server that keeps cookies, whatever it was before.
async fn kept_again(admin: &Api, site: &FormSite) {
    admin.delete("/api/v1/servers/shop").await;
    let settings = json!({"execute": "policy", "cookies": "kept"});
    super::execution::add(admin, site, &["/list"], settings).await;
}

/// Calls the tool once its new server is known here.
async fn call_once_listed(agent: &Api) {
    eventually("the new server to be known", SOON, || async {
        let outcome = call(agent).await;
        (outcome.code() == "ok").then_some(())
    })
    .await;
}

#[tokio::test]
async fn they_end_with_their_time_or_at_the_sites_word() {
    let stage = Stage::with(&[("MCPPROXY__LIMITS__RETENTION_INTERVAL_S", "1")]).await;
    let site = site(&["session=s; Path=/", "short=1; Path=/"]).await;
    let tenant = shop(&stage, &site).await;
    let agent = tenant.agent().await;
    call(&agent).await.ok();
    let week = "select count(*) from web_cookies where expires_at between now() + interval '167 hours'
        and now() + interval '168 hours'";
    assert_eq!(stage.database.count(week).await, 1);
    site.put("POST /theme", thanks().with("set-cookie", "short=; Path=/; Max-Age=0"));
    call(&agent).await.ok();
    call(&agent).await.ok();
    let seen = sent(&site);
    assert_eq!(seen[4..], ["session=s", "session=s"], "{seen:?}");
    let expired = "update web_cookies set expires_at = now()";
    stage.database.connect().await.execute(expired).await.unwrap();
    call(&agent).await.ok();
    assert_eq!(sent(&site), ["", ""]);
    stage.database.connect().await.execute(expired).await.unwrap();
    eventually("the row to be deleted", Duration::from_secs(10), || async {
        (rows(&stage).await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn they_are_bounded_in_number_and_bytes() {
    let stage = Stage::start().await;
    let many: Vec<String> = (0..60).map(|at| format!("n{at}=v; Path=/")).collect();
    let site = site(&many.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let tenant = shop(&stage, &site).await;
    let (agent, other) = (tenant.agent().await, tenant.agent().await);
    call(&agent).await.ok();
    call(&agent).await.ok();
    assert_eq!(sent(&site)[2].split("; ").count(), 50);
    // as much as the heads of two answers may hold
    let large = |name: &str, reply: Reply| {
        let cookie = |at| format!("{name}{at:02}={}; Path=/", "v".repeat(3900));
        (0..12).map(cookie).fold(reply, |reply, cookie| reply.with("set-cookie", &cookie))
    };
    site.put("GET /list", large("a", Reply::page(&theme("t", ""))));
    site.put("POST /theme", large("b", thanks()).with("set-cookie", "session=s; Path=/"));
    call(&other).await.ok();
    call(&other).await.ok();
    let seen = sent(&site)[2].clone();
    assert!(seen.len() > 60_000 && seen.len() <= 64 * 1024, "{}", seen.len());
    assert!(seen.contains("session=s"), "the oldest make room");
}

#[tokio::test]
async fn a_row_of_another_key_opens_for_nobody() {
    let stage = Stage::start().await;
    let site = site(&["session=s; Path=/"]).await;
    let tenant = shop(&stage, &site).await;
    let (agent, colleague) = (tenant.agent().await, tenant.agent().await);
    call(&agent).await.ok();
    let stolen = sqlx::AssertSqlSafe(format!("update web_cookies set principal_id = '{}'", colleague.id));
    stage.database.connect().await.execute(stolen).await.unwrap();
    site.take();
    call(&colleague).await.ok();
    assert_eq!(sent(&site), ["", ""]);
    call(&colleague).await.ok();
    assert_eq!(sent(&site), ["session=s", "session=s"], "its own are kept in their place");
}
