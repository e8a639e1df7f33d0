//! Logins of people at servers, on the page of the server: whose each is.

use reqwest::Method;
use serde_json::{Value, json};

use super::markup::{HOSTILE, assert_harmless, escaped};
use super::{SETTINGS, visitor_with};
use crate::server_logins::{people::connect, put};
use crate::support::{AuthServer, Stage, Tool, Upstream};

#[tokio::test]
async fn logins_say_whose_they_are_and_that_one_is_missing() {
    let stage = Stage::with(&SETTINGS[..1]).await;
    let tenant = stage.tenant("acme").await;
    let logins = AuthServer::start().await;
    let upstream = Upstream::modern(vec![Tool::writes("t")]).await;
    upstream.guard(logins.check());
    upstream.name_issuer(&logins.url);
    let body = json!({"name": "up", "kind": "http", "url": upstream.url});
    tenant.platform.post("/api/v1/servers", &body).await.expect(201);
    put(&tenant.platform, "up", &json!({"kind": "authorization_code"})).await.expect(200);
    let admin = tenant.key(&json!({"role": "admin", "owner": "eva", "name": "desk of eva"})).await;
    let visitor = visitor_with(&stage.gateway, &admin).await;
    // the state is that of REST
    let server = tenant.platform.get("/api/v1/servers/up").await.expect(200);
    assert_eq!(server["connection"], "login_required");
    for path in ["/console/servers", "/console/servers/up"] {
        let page = visitor.get(path).await.text;
        assert!(page.contains("login_required"), "{path}: {page}");
    }
    assert!(
        visitor.get("/console/servers").await.text.contains("<span class=\"tone bad\">login_required</span>")
    );

    connect(&stage.gateway, &admin, true).await.expect(200);
    let named = tenant.key(&json!({"role": "agent", "owner": "bob", "name": HOSTILE[0]})).await;
    connect(&stage.gateway, &named, false).await.expect(200);
    let page = visitor.get("/console/servers/up").await.text;
    assert_harmless(&page);
    let line = |holder: &str| {
        let start = format!("<strong>{}</strong>:", escaped(holder));
        let rest = page.split(&start).nth(1).unwrap_or_else(|| panic!("{holder}: {page}"));
        rest.split("</form>").next().unwrap().to_owned()
    };
    for (holder, lists) in [("desk of eva", true), (HOSTILE[0], false)] {
        let line = line(holder);
        assert_eq!(line.contains("lists the server"), lists, "{line}");
        let button = format!(
            "Forget this login; the person has to log in again<span class=\"hidden\">: {}</span></button>",
            escaped(holder)
        );
        assert!(line.contains(&button), "{line}");
    }
    let path = "/api/v1/servers/up/connections";
    let shown = tenant.platform.ask(Method::GET, path, None).await.expect(200);
    let rows: &Vec<Value> = shown["items"].as_array().unwrap();
    let own = rows.iter().filter(|row| row["principal_id"].is_null()).count();
    assert_eq!(page.matches("the next call logs in again").count(), own, "{page}");

    // many, of whom no name is known
    let mut database = stage.database.connect().await;
    sqlx::query(
        "insert into connections (tenant_id, connection_id, server_id, principal_id, client_generation, state)
         select tenant_id, gen_random_uuid(), server_id, gen_random_uuid(), client_generation, 'connected'
         from (select * from connections limit 1) one, generate_series(1, 120)",
    )
    .execute(&mut database)
    .await
    .unwrap();
    let page = visitor.get("/console/servers/up").await.text;
    assert_harmless(&page);
    assert_eq!(page.matches("/up/disconnect").count(), 100, "{page}");
    assert!(page.contains(&format!("{} more logins are not shown", rows.len() + 20)), "{page}");
    assert!(page.contains("<strong>a person ("), "{page}");
}
