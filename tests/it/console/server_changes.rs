//! Servers that are added, changed and removed at the console.

use std::time::Duration;

use serde_json::{Value, json};

use super::markup::{HOSTILE, assert_harmless, attributes, escaped, form_to, hidden, led_to, notice_on};
use super::servers::offer;
use crate::server_logins;
use crate::support::{Stage, TokenServer, Tool, Upstream, Visitor, settle, upstream};

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_server_is_added_by_a_form_and_no_page_shows_its_secrets() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    let url = format!("{}?key=s3cret-of-the-url", upstream.url);
    let list = visitor.get("/console/servers").await.text;
    assert_eq!(form_to(&list, "/create").as_deref(), Some("/console/servers/create"));
    assert!(!list.contains("value=\"stdio\""), "the deployment has no programs: {list}");
    let headers = "Authorization: Bearer s3cret-of-the-header\r\nX-One: 1\r\n";
    let fields = [("name", "up"), ("kind", "http"), ("url", url.as_str()), ("headers", headers)];
    let added = visitor.post("/console/servers/create", &fields).await;
    assert_eq!(led_to(&added), (303, "/console/servers/up"));
    // the page says what was listed
    let page = visitor.get(added.header("location")).await.text;
    assert_eq!(notice_on(&page), "up is added. All that it offers now is approved.");
    assert!(page.contains("connected") && page.contains("wiper"), "{page}");
    assert!(page.contains("Authorization, X-One"), "{page}");
    assert!(upstream.sent("authorization").iter().all(|sent| sent == "Bearer s3cret-of-the-header"));
    assert!(!upstream.sent("authorization").is_empty());
    let settings = visitor.get("/console/servers/up/settings").await.text;
    for page in [&list, &page, &settings, &visitor.get("/console/servers").await.text] {
        assert!(!page.contains("s3cret"), "{page}");
        assert_harmless(page);
    }
    let record = tenant.records("tool=servers.create&source=console&status=success", 1).await.remove(0);
    assert_eq!(record["server"], "up");
    let recorded: Value = serde_json::from_str(record["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(recorded["body"]["headers"], json!({"Authorization": "[redacted]", "X-One": "[redacted]"}));
    assert!(!record.to_string().contains("s3cret"), "{record}");

    // one that cannot be reached is added as well, and its page says why it has no tools
    let fields = [("name", "away"), ("kind", "http"), ("url", "http://127.0.0.1:1/mcp")];
    let added = visitor.post("/console/servers/create", &fields).await;
    assert_eq!(led_to(&added), (303, "/console/servers/away"));
    let page = visitor.get(added.header("location")).await.text;
    assert!(page.contains("Last error"), "{page}");
    assert!(notice_on(&page).starts_with("away is added. It could not be listed: "), "{page}");
    for (fields, status, says) in [
        (vec![("name", "up"), ("kind", "http"), ("url", &*upstream.url)], 409, ""),
        (
            vec![("name", "NO NAME"), ("kind", "http"), ("url", &*upstream.url)],
            400,
            "This name is not accepted.",
        ),
        (vec![("name", "x"), ("kind", "http")], 400, "needs a url"),
        (vec![("name", "x"), ("kind", "stdio"), ("command", "sh")], 400, "command"),
        (vec![("name", "x"), ("kind", "")], 400, "kind must be"),
        (
            vec![("name", "x"), ("kind", "http"), ("url", &*upstream.url), ("headers", "Bearer s3cret")],
            400,
            "headers",
        ),
    ] {
        let refused = visitor.post("/console/servers/create", &fields).await;
        refused.expect(status);
        assert!(refused.text.contains(says) && !refused.text.contains("s3cret"), "{refused:?}");
    }
    visitor.post("/console/servers/explode", &[]).await.expect(404);
    // a name that is a verb is a name
    tenant.add("create", &upstream).await;
    visitor.get("/console/servers/create").await.expect(200);
}

#[tokio::test]
async fn a_program_is_chosen_from_those_of_the_deployment_and_its_log_is_read() {
    let commands = crate::stdio::commands(&[("prog", "none", &["acme"]), ("theirs", "none", &["other"])]);
    let stage = Stage::with(&[("MCPPROXY__STDIO__COMMANDS", &commands)]).await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let page = visitor.get("/console/servers").await.text;
    assert!(page.contains("<option value=\"prog\">") && !page.contains("theirs"), "{page}");
    assert!(page.contains("<option value=\"\">none</option>"), "{page}");
    // what belongs to the other kind is not left out silently
    let plain = "http://127.0.0.1:1/mcp";
    for (kind, url, headers, command, says) in [
        ("stdio", plain, "", "prog", "An address is for a server of kind http."),
        ("stdio", plain, "", "", "An address is for a server of kind http."),
        ("stdio", "", "X-One: 1", "prog", "Headers are for a server of kind http."),
        ("http", plain, "", "prog", "A program is for a server of kind stdio."),
        ("stdio", "", "", "", "command"),
        ("http", "", "", "", "Give the whole address"),
    ] {
        let fields =
            [("name", "up"), ("kind", kind), ("command", command), ("url", url), ("headers", headers)];
        let page = visitor.post("/console/servers/create", &fields).await;
        page.expect(400);
        assert_harmless(&page.text);
        assert!(page.text.contains(says), "{kind}: {page:?}");
        assert!(attributes(&page.text, "value").contains(&url.to_owned()), "{page:?}");
        let chosen = page.text.contains("<option value=\"prog\" selected>");
        assert_eq!(chosen, !command.is_empty(), "{page:?}");
    }
    assert_eq!(tenant.platform.items("/api/v1/servers").await.len(), 0);
    let fields = [("name", "up"), ("kind", "stdio"), ("command", "prog"), ("url", ""), ("headers", "")];
    visitor.post("/console/servers/create", &fields).await.expect(303);
    assert!(visitor.get("/console/servers/up").await.text.contains("connected"));
    visitor
        .post("/console/servers/create", &[("name", "x"), ("kind", "stdio"), ("command", "theirs")])
        .await
        .expect(400);
    let has_lines = async || {
        let page = visitor.get("/console/servers/up/logs").await;
        page.expect(200);
        assert_harmless(&page.text);
        page.text.contains("<td>gateway</td>") || page.text.contains("<td>stderr</td>")
    };
    settle(true, SOON, has_lines).await;
    let reads = async || {
        !tenant.platform.items("/api/v1/activity?tool=servers.logs&source=console&server=up").await.is_empty()
    };
    settle(true, SOON, reads).await;
    let settings = visitor.get("/console/servers/up/settings").await.text;
    assert!(settings.contains("as now: prog") && !settings.contains("s-headers"), "{settings}");
    let version = hidden(&settings, "version");
    let same = [("version", version.as_str()), ("command", ""), ("limits.queue", "3")];
    visitor.post("/console/servers/up/update", &same).await.expect(303);
    let server = tenant.platform.get("/api/v1/servers/up").await.expect(200);
    assert_eq!((&server["command"], &server["limits"]), (&json!("prog"), &json!({"queue": 3})), "{server}");
}

#[tokio::test]
async fn settings_change_by_version_and_what_is_left_empty_stays() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let (upstream, other) =
        (Upstream::handshake(upstream::zoo()).await, Upstream::handshake(upstream::zoo()).await);
    tenant
        .add_with("up", &upstream, json!({"headers": {"X-One": "s3cret-one"}, "limits": {"queue": 9}}))
        .await;
    let page = visitor.get("/console/servers/up/settings").await.text;
    assert!(page.contains("X-One") && !page.contains("s3cret"), "{page}");
    let version = hidden(&page, "version");
    let of = |fields: &[(&'static str, &str)]| {
        let own = [("version", version.clone()), ("auto_approve", String::new())];
        let fields = fields.iter().map(|(name, value)| (*name, (*value).to_owned()));
        own.into_iter().chain(fields).collect::<Vec<_>>()
    };
    let send = async |fields: Vec<(&'static str, String)>| {
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        visitor.post("/console/servers/up/update", &fields).await
    };
    for (name, value) in
        [("limits.queue", "many"), ("limits.queue", "99999999"), ("headers", "Bearer s3cret")]
    {
        let refused = send(of(&[(name, value)])).await;
        refused.expect(400);
        assert!(!refused.text.contains("s3cret"), "{refused:?}");
    }
    send(vec![("limits.queue", "1".to_owned())]).await.expect(400);
    let done = send(of(&[("limits.queue", "5"), ("limits.concurrency", "2")])).await;
    assert_eq!(led_to(&done), (303, "/console/servers/up"));
    let page = visitor.get(done.header("location")).await.text;
    assert_eq!(notice_on(&page), "Changed: limits.concurrency, limits.queue.");
    let server = tenant.platform.get("/api/v1/servers/up").await.expect(200);
    assert_eq!(server["limits"], json!({"queue": 5, "concurrency": 2}));
    assert_eq!((&server["headers"], &server["auto_approve"]), (&json!(["X-One"]), &json!(false)), "{server}");
    // whoever was slower loads the page again
    send(of(&[("limits.queue", "7")])).await.expect(409);

    let version = hidden(&visitor.get("/console/servers/up/settings").await.text, "version");
    let was = hidden(&visitor.get("/console/servers/up/settings").await.text, "was");
    let fields = [
        ("version", version.as_str()),
        ("was", was.as_str()),
        ("url", &other.url),
        ("headers", "X-Two: s3cret-two"),
        ("auto_approve", "true"),
    ];
    visitor.post("/console/servers/up/update", &fields).await.expect(303);
    let server = tenant.platform.get("/api/v1/servers/up").await.expect(200);
    assert_eq!((&server["url"], &server["headers"]), (&json!(other.url), &json!(["X-Two"])), "{server}");
    assert_eq!((&server["auto_approve"], &server["limits"]), (&json!(true), &json!({})), "{server}");
    assert_eq!(other.sent("x-two").first().map(String::as_str), Some("s3cret-two"));
    let version = hidden(&visitor.get("/console/servers/up/settings").await.text, "version");
    let same = visitor.post("/console/servers/up/update", &[("version", &*version)]).await;
    assert_eq!(led_to(&same), (303, "/console/servers/up"));
    let page = visitor.get(same.header("location")).await.text;
    assert_eq!(notice_on(&page), "Nothing differed; nothing was changed.");
    let fields = [("version", &*version), ("credentials", "remove")];
    let done = visitor.post("/console/servers/up/update", &fields).await;
    assert_eq!(led_to(&done), (303, "/console/servers/up"));
    assert_eq!(notice_on(&visitor.get(done.header("location")).await.text), "Changed: headers.");
    assert_eq!(tenant.platform.get("/api/v1/servers/up").await.expect(200)["headers"], json!([]));
    let records = tenant.records("tool=servers.update&source=console&status=success", 4).await;
    assert!(!Value::from(records).to_string().contains("s3cret"));
}

#[tokio::test]
async fn a_server_is_removed_after_a_question() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("up", &upstream).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.operator().await).await;
    let page = visitor.get("/console/servers/up").await.text;
    assert!(attributes(&page, "href").contains(&"/console/servers/up/remove".to_owned()), "{page}");
    assert!(form_to(&page, "/remove").is_none(), "no button of this page removes: {page}");
    let asked = visitor.get("/console/servers/up/remove").await.text;
    tenant.platform.get("/api/v1/servers/up").await.expect(200);
    let action = form_to(&asked, "/remove").unwrap();
    let done = visitor.post(&action, &[]).await;
    let (status, notice) = (done.status, done.header("location"));
    assert!(status == 303 && notice.starts_with("/console/servers?done="), "{done:?}");
    let list = visitor.get(notice).await.text;
    assert!(list.contains("The server up was removed."), "{list}");
    // a link tells nobody else, and a link that somebody made up tells nothing
    let colleague = Visitor::with_key(&stage.gateway, &tenant.operator().await).await;
    for (visitor, path) in [
        (&colleague, notice),
        (&visitor, "/console/servers?done=removed"),
        (&visitor, &*notice.replace("+up+", "+prod+")),
    ] {
        let page = visitor.get(path).await;
        page.expect(200);
        assert!(!page.text.contains("was removed"), "{page:?}");
    }
    tenant.platform.get("/api/v1/servers/up").await.expect(404);
    visitor.post(&action, &[]).await.expect(404);
    for part in ["remove", "settings", "logs", "explode"] {
        visitor.get(&format!("/console/servers/up/{part}")).await.expect(404);
    }
    tenant.records("tool=servers.remove&source=console&status=success&server=up", 1).await;
}

#[tokio::test]
async fn a_pasted_file_adds_what_can_be_added_and_says_the_rest() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("here", &upstream).await;
    let file = json!({"mcpServers": {
        "New One": {"url": upstream.url, "headers": {"Authorization": "Bearer s3cret-of-the-file"}},
        "new-one": {"url": upstream.url},
        "here": {"url": "http://127.0.0.1:1/other"},
        "away": {"url": "http://127.0.0.1:1/mcp", "disabledTools": ["x"]},
        "bad": {"url": "ftp://s3cret@example.com"},
        "refers": {"url": upstream.url, "headers": {"X": "${env:TOKEN}"}},
        "files": {"command": "npx", "args": ["-y", "files", "--token", "s3cret-of-a-flag"]},
        "日本": {"url": upstream.url},
        "sse": {"type": "sse", "url": "https://h.example/sse"},
    }});
    let page = visitor.post("/console/servers/import", &[("file", &file.to_string())]).await;
    page.expect(200);
    assert_harmless(&page.text);
    assert!(!page.text.contains("s3cret"), "{page:?}");
    let word = |name: &str| {
        let row = page
            .text
            .split("<tr>")
            .find(|row| row.contains(&format!(">{name}</")))
            .unwrap_or_else(|| panic!("{name}: {page:?}"));
        row.split("<span class=\"tone ")
            .nth(1)
            .unwrap()
            .split('>')
            .nth(1)
            .unwrap()
            .split('<')
            .next()
            .unwrap()
            .to_owned()
    };
    for (name, expected) in [
        ("New One", "added"),
        ("new-one", "not imported"),
        ("here", "left as it is"),
        ("away", "added, not listed"),
        ("bad", "not added"),
        ("refers", "not imported"),
        ("files", "not added: a program"),
        ("日本", "not imported"),
        ("sse", "not imported"),
    ] {
        assert_eq!(word(name), expected, "{name}");
    }
    assert!(
        page.text.contains("[stdio.commands.files]") && page.text.contains("disabledTools kept tools"),
        "{page:?}"
    );
    assert!(page.text.contains("whoever runs the gateway puts the entry below there"), "{page:?}");
    assert_eq!(page.text.matches("is new-one here").count(), 1, "{page:?}");
    let names: Vec<Value> = tenant
        .platform
        .items("/api/v1/servers")
        .await
        .into_iter()
        .map(|server| server["name"].clone())
        .collect();
    assert_eq!(names, ["away", "here", "new-one"]);
    assert!(upstream.sent("authorization").contains(&"Bearer s3cret-of-the-file".to_owned()));
    // again it changes nothing
    let again = visitor.post("/console/servers/import", &[("file", &file.to_string())]).await;
    again.expect(200);
    assert_eq!(again.text.matches("left as it is").count(), 3, "{again:?}");
    let records = tenant.records("tool=servers.create&source=console", 4).await;
    assert!(!Value::from(records).to_string().contains("s3cret"));
    for (file, says) in [
        ("", "The file is empty; nothing was added."),
        (" \n", "The file is empty; nothing was added."),
        ("{}", "has no servers"),
        ("[mcp_servers.a]", "JSON"),
        (r#"{"mcpServers": "s3cret"}"#, "must be an object"),
    ] {
        let refused = visitor.post("/console/servers/import", &[("file", file)]).await;
        refused.expect(400);
        // the file is in the form again, and nowhere else
        let (before, rest) = refused.text.split_once("<textarea id=\"s-file\"").unwrap();
        let after = rest.split_once("</textarea>").unwrap().1;
        assert!(before.contains(says) && !format!("{before}{after}").contains("s3cret"), "{refused:?}");
    }
    let hostile: serde_json::Map<String, Value> =
        HOSTILE.iter().map(|text| ((*text).to_owned(), json!({"note": text, *text: text}))).collect();
    let page = visitor
        .post("/console/servers/import", &[("file", &json!({"mcpServers": hostile}).to_string())])
        .await;
    page.expect(200);
    assert_harmless(&page.text);
    HOSTILE.iter().for_each(|text| assert!(page.text.contains(&escaped(text)), "{text}: {page:?}"));
}

#[tokio::test]
async fn a_tool_is_overridden_for_its_definition_and_by_version() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let upstream = Upstream::handshake(vec![Tool::writes("t")]).await;
    tenant.add("up", &upstream).await;
    let tool = async || tenant.platform.items("/api/v1/servers/up/tools").await.remove(0);
    let page = visitor.get("/console/servers/up?tool=t").await.text;
    let action = form_to(&page, "/override").unwrap();
    let form = page.split("/tools/override\"").nth(1).unwrap();
    let (pin, version, name) = (hidden(form, "pin"), hidden(form, "version"), hidden(form, "tool"));
    let base = [("tool", name.as_str()), ("pin", &pin), ("version", &version)];
    let refused = visitor.post(&action, &base).await;
    refused.expect(400);
    assert!(refused.text.contains("choose a value, or give a title"), "{refused:?}");
    visitor.post(&action, &[&base[..2], &[("readOnlyHint", "true")]].concat()).await.expect(400);
    let long = "x".repeat(201);
    let refused = visitor.post(&action, &[&base[..], &[("title", &*long)]].concat()).await;
    refused.expect(400);
    let named = "&#34;Title, for people&#34; must be no longer than 200 characters.";
    assert!(refused.text.contains(named) && !refused.text.contains("annotations.title"), "{refused:?}");
    assert!(
        attributes(&refused.text, "href").contains(&"/console/servers/up?tool=t".to_owned()),
        "{refused:?}"
    );
    let said =
        [&base[..], &[("readOnlyHint", "true"), ("destructiveHint", ""), ("title", "A \"title\"")]].concat();
    let done = visitor.post(&action, &said).await;
    assert_eq!(led_to(&done), (303, "/console/servers/up?tool=t"));
    let page = visitor.get(done.header("location")).await.text;
    assert_eq!(notice_on(&page), "The override of t is set. Its tier is read now.");
    let now = tool().await;
    assert_eq!(
        (&now["tier"], &now["override"]["annotations"]),
        (&json!("read"), &json!({"readOnlyHint": true, "title": "A \"title\""}))
    );
    // the form of before is too old
    visitor.post(&action, &said).await.expect(409);
    let page = visitor.get("/console/servers/up?tool=t").await.text;
    assert!(!page.contains("are both true"), "{page}");
    let version = hidden(page.split("/tools/override\"").nth(1).unwrap(), "version");
    let hints = [("version", &*version), ("readOnlyHint", "true"), ("destructiveHint", "true")];
    visitor.post(&action, &[&base[..2], &hints, &[("title", "A \"title\"")]].concat()).await.expect(303);
    let page = visitor.get("/console/servers/up?tool=t").await.text;
    assert!(page.contains("are both true: the tool counts as destructive."), "{page}");
    assert_eq!(tool().await["tier"], "destructive");
    assert_harmless(&page);
    assert!(page.contains("value=\"A &#34;title&#34;\""), "{page}");
    let record = tenant.records("tool=tools.override&source=console&status=success", 2).await.remove(0);
    let recorded: Value = serde_json::from_str(record["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&recorded["tool"], &recorded["body"]["annotations"]["readOnlyHint"]),
        (&json!("t"), &json!(true)),
        "{record}"
    );
    // another definition: what makes the tool look more harmless counts no more, and the page says so
    assert!(page.contains(">as the server says: "), "{page}");
    let lapsed = "what makes the tool look more harmless counts no more";
    assert!(!page.contains(lapsed), "{page}");
    offer(&tenant, &upstream, vec![Tool::destroys("t")]).await;
    let page = visitor.get("/console/servers/up?tool=t").await.text;
    assert!(page.contains(lapsed), "{page}");
    let done = visitor.post(&form_to(&page, "/clear_override").unwrap(), &[("tool", &name)]).await;
    assert_eq!(led_to(&done), (303, "/console/servers/up?tool=t"));
    assert_eq!(notice_on(&visitor.get(done.header("location")).await.text), "The override of t is removed.");
    assert_eq!(tool().await["override"], Value::Null);
    let auditor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    auditor.post(&action, &said).await.expect(403);
    assert!(form_to(&auditor.get("/console/servers/up?tool=t").await.text, "/override").is_none());
}

#[tokio::test]
async fn a_login_of_the_gateway_is_seen_and_removed() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let tokens = TokenServer::start().await;
    let upstream = server_logins::guarded(&tokens, Upstream::handshake(upstream::zoo()).await).await;
    server_logins::add(&tenant, "up", &upstream, &server_logins::login(&tokens, "a")).await;
    let auditor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    let page = auditor.get("/console/servers/up").await.text;
    assert!(page.contains("Login of the gateway") && page.contains("client_credentials"), "{page}");
    assert_eq!(attributes(&page, "action"), ["/console/logout"]);
    let visitor = Visitor::with_key(&stage.gateway, &tenant.operator().await).await;
    let page = visitor.get("/console/servers/up").await.text;
    assert_harmless(&page);
    assert!(!page.contains(&crate::support::secret_of("a")), "{page}");
    let id = hidden(&page, "connection");
    let path = "/api/v1/servers/up/connections";
    let ids = async || {
        tenant.platform.get(path).await.expect(200)["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["id"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids().await, [id.as_str()]);
    let action = form_to(&page, "/disconnect").unwrap();
    let done = visitor.post(&action, &[("connection", &id)]).await;
    assert_eq!(led_to(&done), (303, "/console/servers/up"));
    assert_eq!(notice_on(&visitor.get(done.header("location")).await.text), "The login is forgotten.");
    assert!(!ids().await.contains(&json!(id)));
    for other in [&*id, "x"] {
        visitor.post(&action, &[("connection", other)]).await.expect(404);
    }
    // the button is on a page of its own, which asks
    assert!(form_to(&page, "/remove_oauth").is_none(), "{page}");
    let asked = "/console/servers/up/remove_oauth";
    assert!(attributes(&page, "href").contains(&asked.to_owned()), "{page}");
    auditor.get(asked).await.expect(403);
    let question = visitor.get(asked).await;
    question.expect(200);
    assert_harmless(&question.text);
    tenant.platform.get("/api/v1/servers/up").await.expect(200)["oauth"].as_object().unwrap();
    let done = visitor.post(&form_to(&question.text, "/remove_oauth").unwrap(), &[]).await;
    assert_eq!(led_to(&done), (303, "/console/servers/up"));
    assert_eq!(notice_on(&visitor.get(done.header("location")).await.text), "The login at up is removed.");
    visitor.get(asked).await.expect(404);
    assert!(tenant.platform.get("/api/v1/servers/up").await.expect(200).get("oauth").is_none());
    for what in ["servers.disconnect", "servers.remove_oauth"] {
        tenant.records(&format!("tool={what}&source=console&status=success&server=up"), 1).await;
    }
}

#[tokio::test]
async fn who_may_not_change_servers_adds_and_removes_none() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("up", &upstream).await;
    let file = json!({"mcpServers": {"x": {"url": upstream.url}}}).to_string();
    let fields =
        [("name", "x"), ("kind", "http"), ("url", &*upstream.url), ("file", &*file), ("version", "1")];
    for low in [tenant.auditor().await, tenant.agent().await, tenant.approver().await] {
        let visitor = Visitor::with_key(&stage.gateway, &low).await;
        for path in ["create", "import", "up/update", "up/remove", "up/remove_oauth", "up/disconnect"] {
            visitor.post(&format!("/console/servers/{path}"), &fields).await.expect(403);
        }
        for part in ["settings", "remove", "remove_oauth", "logs"] {
            visitor.get(&format!("/console/servers/up/{part}")).await.expect(403);
        }
        for what in ["servers.create", "servers.update", "servers.remove"] {
            let query = format!("source=console&tool={what}&key={}&status=blocked", low.id);
            let count = if what == "servers.create" { 2 } else { 1 };
            tenant.records(&query, count).await;
        }
    }
    assert_eq!(tenant.platform.items("/api/v1/servers").await.len(), 1);
    let stranger = Visitor::with_key(&stage.gateway, &stage.tenant("other").await.admin().await).await;
    for part in ["settings", "remove", "remove_oauth", "logs"] {
        stranger.get(&format!("/console/servers/up/{part}")).await.expect(404);
    }
    for path in ["up/update", "up/remove", "up/remove_oauth"] {
        stranger.post(&format!("/console/servers/{path}"), &fields).await.expect(404);
    }
    // an operator's server waits in quarantine, and approves nothing by itself
    let operator = Visitor::with_key(&stage.gateway, &tenant.operator().await).await;
    operator.post("/console/servers/create", &fields[..3]).await.expect(303);
    assert_eq!(tenant.platform.get("/api/v1/servers/x").await.expect(200)["quarantined"], true);
    let approving = [("name", "y"), fields[1], fields[2], ("auto_approve", "true")];
    operator.post("/console/servers/create", &approving).await.expect(403);
}
