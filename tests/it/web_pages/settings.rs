//! Settings of servers of web pages: what is taken, shown, sealed and refused.

use serde_json::{Value, json};
use sqlx::Row;

use super::site::Site;
use super::{SEARCH, add, stage};
use crate::support::{Tool, Upstream, cli};

const SECRET: &str = "correct horse battery staple";

#[tokio::test]
async fn settings_have_defaults_and_are_changed_one_by_one() {
    let (_stage, tenant) = stage().await;
    let site = Site::start(SEARCH).await;
    let admin = tenant.admin().await;
    let added = add(&admin, &site, &["/?category=shoes"], json!({})).await;
    let shown = format!("{}?[redacted]", site.at("/"));
    let expected = json!({"kind": "web_page", "url": shown, "pages": [shown], "sources": ["wam"],
        "disclosure": "on_request", "execute": "ask", "require_wam_policy": true, "methods": ["get", "post"],
        "cookies": "ephemeral", "direct": false, "field_secrets": [], "headers": []});
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&added[name], value, "{name}");
    }
    let change = json!({"execute": "off", "direct": true, "sources": ["wam", "forms"], "methods": ["get"]});
    let changed = admin.patch("/api/v1/servers/shop", &change).await.expect(200);
    for (name, value) in change.as_object().unwrap() {
        assert_eq!(&changed[name], value, "{name}");
    }
    assert_eq!((&changed["pages"], &changed["disclosure"]), (&expected["pages"], &expected["disclosure"]));
    // as a client would send it back
    let masked = admin.patch("/api/v1/servers/shop", &json!({"pages": [shown]})).await;
    assert!(masked.refused(400, "invalid_request").contains("masked"));
}

#[tokio::test]
async fn wrong_settings_are_refused_with_advice() {
    let (_stage, tenant) = stage().await;
    let site = Site::start(SEARCH).await;
    let other = Site::start(SEARCH).await;
    let admin = tenant.admin().await;
    let page = site.at("/");
    let many: Vec<String> = (0..11).map(|n| site.at(&format!("/{n}"))).collect();
    for (more, field, says) in [
        (json!({}), "pages", "needs pages"),
        (json!({"pages": []}), "pages", "1 to 10"),
        (json!({"pages": many}), "pages", "1 to 10"),
        (json!({"pages": page}), "pages", "list of strings"),
        (json!({"pages": ["shop.example"]}), "pages", "https://"),
        (json!({"pages": ["ftp://shop.example/"]}), "pages", "http"),
        (json!({"pages": ["https://u:p@shop.example/"]}), "pages", "field_secrets"),
        (json!({"pages": [format!("{page}#top")]}), "pages", "fragment"),
        (json!({"pages": [page, page]}), "pages", "twice"),
        (json!({"pages": ["https://10.1.2.3/"]}), "pages", "egress.allow"),
        (json!({"pages": ["http://8.8.8.8/"]}), "pages", "port 443"),
        (json!({"pages": ["https://8.8.8.8:8443/"]}), "pages", "port 443"),
        (json!({"pages": ["http://0xa.1.2.3/"]}), "pages", "egress.allow"),
        (json!({"pages": [page], "sources": ["wam", "wam"]}), "sources", "webmcp"),
        (json!({"pages": [page], "sources": []}), "sources", "empty"),
        (json!({"pages": [page], "methods": []}), "methods", "empty"),
        (json!({"pages": [page], "disclosure": "sometimes"}), "disclosure", "on_request"),
        (json!({"pages": [page], "execute": true}), "execute", "policy"),
        (json!({"pages": [page], "url": page}), "url", "pages"),
        (json!({"pages": [page], "headers": {"X-A": "b"}}), "headers", "pages"),
        (
            json!({"pages": [page, other.at("/")], "field_secrets": {"pin": SECRET}}),
            "field_secrets",
            "one origin",
        ),
        (json!({"pages": [page], "field_secrets": {"pin": ""}}), "field_secrets.pin", "empty"),
    ] {
        let mut body = json!({"name": "shop", "kind": "web_page"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = admin.post("/api/v1/servers", &body).await;
        assert_eq!(answer.json()["error"]["field"], field, "{more}: {}", answer.json());
        let message = answer.refused(400, "invalid_request");
        assert!(message.contains(says) && !message.contains(SECRET), "{more}: {message}");
    }
    let http = json!({"name": "x", "kind": "http", "url": page, "execute": "off"});
    assert!(admin.post("/api/v1/servers", &http).await.refused(400, "invalid_request").contains("web_page"));
    assert!(site.requests().is_empty() && other.requests().is_empty());
    let agent = tenant.agent().await;
    agent
        .post("/api/v1/servers", &json!({"name": "x", "kind": "web_page", "pages": [page]}))
        .await
        .refused(403, "forbidden");
}

#[tokio::test]
async fn secrets_for_fields_are_sealed_and_stay_at_their_place() {
    let (stage, tenant) = stage().await;
    let site = Site::start(SEARCH).await;
    let admin = tenant.admin().await;
    let added = add(&admin, &site, &["/"], json!({"field_secrets": {"user[pin]": SECRET}})).await;
    assert_eq!((&added["field_secrets"], &added["headers"]), (&json!(["user[pin]"]), &json!([])));
    let records = tenant.records("type=admin&server=shop", 1).await;
    assert!(records[0]["arguments"].as_str().unwrap().contains("field_secrets"), "{records:?}");
    assert!(!records[0].to_string().contains(SECRET));
    let mut connection = stage.database.connect().await;
    let row = sqlx::query("select sealed from server_secrets").fetch_one(&mut connection).await.unwrap();
    let sealed: Vec<u8> = row.get(0);
    assert!(!String::from_utf8_lossy(&sealed).contains(SECRET));

    let same = admin.patch("/api/v1/servers/shop", &json!({"pages": [site.at("/?x")]})).await.expect(200);
    assert_eq!(same["field_secrets"], json!(["user[pin]"]), "another query is the same place");
    let moved = admin.patch("/api/v1/servers/shop", &json!({"pages": [site.at("/other")]})).await.expect(200);
    assert_eq!((&moved["field_secrets"], &moved["quarantined"]), (&json!([]), &json!(false)));
    assert_eq!(stage.database.count("select count(*) from server_secrets").await, 0);
    let operator = tenant.operator().await;
    let moved =
        operator.patch("/api/v1/servers/shop", &json!({"pages": [site.at("/third")]})).await.expect(200);
    assert_eq!(moved["quarantined"], json!(true), "an operator moved it");
    admin.patch("/api/v1/servers/shop", &json!({"field_secrets": {"pin": SECRET}})).await.expect(200);
    let cleared = admin.patch("/api/v1/servers/shop", &json!({"field_secrets": null})).await.expect(200);
    assert_eq!(cleared["field_secrets"], json!([]));
}

#[tokio::test]
async fn the_command_line_adds_and_inspects_pages() {
    let (_stage, tenant) = stage().await;
    let site = Site::start(SEARCH).await;
    let admin = tenant.admin().await;
    let page = site.at("/");
    let add = [
        "upstream",
        "add",
        "shop",
        "--page",
        &page,
        "--disclosure",
        "always",
        "--execute",
        "off",
        "-o",
        "json",
    ];
    let added = cli(&admin, &add).await.ok().json();
    assert_eq!((&added["kind"], &added["execute"]), (&json!("web_page"), &json!("off")), "{added}");
    let update =
        ["upstream", "update", "shop", "--direct", "true", "--field-secret", "pin=0000", "-o", "json"];
    let updated = cli(&admin, &update).await.ok().json();
    assert_eq!((&updated["direct"], &updated["field_secrets"]), (&json!(true), &json!(["pin"])));
    cli(&admin, &["upstream", "add", "x", "--page", &page, "--source", "guess"]).await.failed(2, "webmcp");

    let inspect = ["page", "inspect", &page, "--allow", "127.0.0.0/8", "-o", "json"];
    let report = cli(&admin, &inspect).await.ok().json();
    let served = admin.get("/api/v1/servers/shop/page-report").await.expect(200);
    let plain = |report: &Value| (report["pages"][0]["status"].clone(), report["pages"][0]["forms"].clone());
    assert_eq!(plain(&report), plain(&served), "the same page, with and without a gateway");
    let shown = cli(&admin, &["page", "inspect", &page, "--allow", "127.0.0.0/8"]).await.ok().out;
    assert!(shown.contains("search_products"), "{shown}");
    cli(&admin, &["page", "inspect", &page]).await.failed(2, "egress.allow");
    let missing = site.at("/missing");
    cli(&admin, &["page", "inspect", &missing, "--allow", "127.0.0.1"]).await.failed(1, "404");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    std::fs::write(&file, SEARCH).unwrap();
    let base = ["page", "inspect", file.to_str().unwrap(), "--base", &page, "-o", "json"];
    assert_eq!(cli(&admin, &base).await.ok().json()["pages"][0]["forms"], served["pages"][0]["forms"]);
}

#[tokio::test]
async fn a_page_without_tools_is_inspected_and_added_as_the_command_line_says() {
    let (_stage, tenant) = stage().await;
    let site =
        Site::start("<title>Shop</title><form id=find role=search><input name=q><button>Go</button></form>")
            .await;
    let admin = tenant.admin().await;
    let page = site.at("/");
    let added = cli(&admin, &["upstream", "add", "shop", "--page", &page]).await.ok();
    for part in ["page report shop", "page inspect URL"] {
        assert!(added.err.contains(part), "{part}: {}", added.err);
    }
    // the server's own sources, and why they found nothing
    let report = cli(&admin, &["page", "report", "shop"]).await.ok().out;
    assert!(report.contains("#find") && report.contains("no tool: "), "{report}");
    let json = cli(&admin, &["page", "report", "shop", "-o", "json"]).await.ok().json();
    assert_eq!(json, admin.get("/api/v1/servers/shop/page-report").await.expect(200));
    // all sources, and the command that takes what they find
    let inspected = cli(&admin, &["page", "inspect", &page, "--allow", "127.0.0.1"]).await.ok();
    let command = inspected.err.split_once("mcpproxy ").unwrap().1.trim();
    assert_eq!(command, format!("upstream add NAME --page '{page}' --source forms"));
    let command = command.replace("NAME", "other").replace('\'', "");
    cli(&admin, &command.split(' ').collect::<Vec<_>>()).await.ok();
    let tools = admin.items("/api/v1/servers/other/tools").await;
    assert!(tools.iter().any(|tool| tool["name"] == "find"), "{tools:?}");
    cli(&admin, &["page", "report", "missing"]).await.failed(3, "server not found");
    let doctor = cli(&admin, &["doctor"]).await.ok().out;
    let says = "WARN  server   'shop' is connected, and no form of its pages has become a tool: mcpproxy page report shop says why\n";
    assert!(doctor.contains(says) && doctor.contains("ok    server   'other' is connected, "), "{doctor}");
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    tenant.add("plain", &upstream).await;
    cli(&admin, &["page", "report", "plain"]).await.failed(3, "server 'plain' is not of kind web_page");
}
