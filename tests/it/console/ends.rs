//! Ends of sessions, on every replica.

use std::time::Duration;

use serde_json::json;
use sqlx::Executor;

use crate::support::{Gateway, Stage, Visitor, settle};

const SOON: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_session_ends_with_its_key_on_every_replica() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let other = Gateway::start(&stage.database, &[]).await;
    let admin = tenant.admin().await;
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    let there = visitor.at(&other);
    assert_eq!(there.get("/console").await.status, 200, "any replica serves the session");
    tenant.platform.delete(&format!("/api/v1/keys/{}", admin.id)).await.expect(204);
    assert_eq!(visitor.get("/console").await.status, 303);
    settle(303, SOON, || async { there.get("/console").await.status }).await;
    assert_eq!(stage.database.count("select count(*) from web_sessions").await, 0);

    let brief = tenant.admin().await;
    let visitor = Visitor::with_key(&stage.gateway, &brief).await;
    let (path, past) = (format!("/api/v1/keys/{}", brief.id), "2020-01-01T00:00:00Z");
    let patched = tenant.platform.patch(&path, &json!({ "expires_at": past })).await;
    if patched.status == 200 {
        settle(303, SOON, || async { visitor.at(&other).get("/console").await.status }).await;
    } else {
        // keys cannot be given an end in the past: the database says that time has passed
        let expire = "update api_keys set expires_at = now() - interval '1 s'";
        stage.database.connect().await.execute(expire).await.unwrap();
        let third = Gateway::start(&stage.database, &[]).await;
        assert_eq!(visitor.at(&third).get("/console").await.status, 303);
    }
}

#[tokio::test]
async fn a_suspended_tenant_is_shown_nothing() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let other = Gateway::start(&stage.database, &[]).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let there = visitor.at(&other);
    there.get("/console").await.expect(200);
    let csrf = visitor.csrf().await;
    stage.platform().post("/api/v1/tenants/acme/suspend", &json!({})).await.expect(200);
    let page = visitor.get("/console").await;
    assert_eq!(page.status, 403);
    assert!(page.text.contains("this tenant is suspended"), "{page:?}");
    settle(403, SOON, || async { there.get("/console").await.status }).await;
    // who sits there can still log out
    let out = visitor.send(visitor.form("/console/logout", &[("csrf", &csrf)])).await;
    assert_eq!(out.status, 303);
    stage.platform().post("/api/v1/tenants/acme/resume", &json!({})).await.expect(200);
    settle(303, SOON, || async { there.get("/console").await.status }).await;
}

#[tokio::test]
async fn a_session_ends_when_it_is_not_used_and_after_a_day() {
    let stage = Stage::with(&[("MCPPROXY__LIMITS__RETENTION_INTERVAL_S", "1")]).await;
    let admin = stage.tenant("acme").await.admin().await;
    let mut connection = stage.database.connect().await;
    let lasts = "select count(*) from web_sessions
                 where expires_at between now() + interval '23 hours 59 minutes' and now() + interval '24 hours'";
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    assert_eq!(stage.database.count(lasts).await, 1);
    for (minutes, status) in [("7 hours 59 minutes", 200), ("8 hours 1 minute", 303)] {
        let seen =
            sqlx::AssertSqlSafe(format!("update web_sessions set seen_at = now() - interval '{minutes}'"));
        connection.execute(sqlx::query(seen)).await.unwrap();
        assert_eq!(visitor.get("/console").await.status, status, "{minutes}");
    }
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    // use keeps it, to the minute
    connection.execute("update web_sessions set seen_at = now() - interval '2 hours'").await.unwrap();
    visitor.get("/console").await.expect(200);
    let used = "select count(*) from web_sessions where seen_at > now() - interval '1 minute'";
    assert_eq!(stage.database.count(used).await, 1);
    // but not for longer than a day; then it is deleted
    connection.execute("update web_sessions set expires_at = now() - interval '1 s'").await.unwrap();
    assert_eq!(visitor.get("/console").await.status, 303);
    settle(0, Duration::from_secs(10), || stage.database.count("select count(*) from web_sessions")).await;
}

#[tokio::test]
async fn a_holder_ends_own_sessions_alone() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let other = Gateway::start(&stage.database, &[]).await;
    let (admin, stranger) = (tenant.admin().await, tenant.admin().await);
    let one = Visitor::with_key(&stage.gateway, &admin).await;
    let another = Visitor::with_key(&other, &admin).await;
    let strange = Visitor::with_key(&stage.gateway, &stranger).await;
    let ends = |page: &str| -> Vec<String> {
        let parts = page.split("action=\"").skip(1).filter_map(|rest| rest.split('"').next());
        parts.filter(|action| action.ends_with("/end")).map(str::to_owned).collect()
    };
    let listed = ends(&one.get("/console").await.text);
    assert_eq!(listed.len(), 1, "the other one, not the own: {listed:?}");
    assert!(ends(&strange.get("/console").await.text).is_empty());
    assert_eq!(strange.post(&listed[0], &[]).await.status, 404, "another key's");
    assert_eq!(another.get("/console").await.status, 200);
    let done = one.post(&listed[0], &[]).await;
    assert_eq!((done.status, done.header("location")), (303, "/console"));
    assert_eq!(another.get("/console").await.status, 303);
    assert_eq!(one.post(&listed[0], &[]).await.status, 404, "it has ended");
    assert_eq!(one.post("/console/sessions/x/end", &[]).await.status, 404);
    assert_eq!(one.get("/console").await.status, 200);
}
