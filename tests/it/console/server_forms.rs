//! Forms of servers that are shown again after a fault, with what was typed, and files of many servers.

use serde_json::{Map, json};

use super::markup::{HOSTILE, assert_harmless, attributes, escaped, form_to, hidden};
use crate::support::{Browser, SESSION, Stage, Tool, Upstream, Visitor, upstream};

#[tokio::test]
async fn a_form_that_adds_a_server_keeps_what_was_typed() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("up", &upstream).await;
    let typed = |name, url, headers| {
        [("name", name), ("kind", "http"), ("url", url), ("headers", headers), ("auto_approve", "true")]
    };
    let plain = "http://127.0.0.1:1/mcp";
    for (name, status) in [("up", 409), ("NO NAME", 400)] {
        let page = visitor.post("/console/servers/create", &typed(name, plain, "X-Key: s3cret")).await;
        page.expect(status);
        assert_harmless(&page.text);
        let values = attributes(&page.text, "value");
        assert!([name, plain].iter().all(|value| values.contains(&(*value).to_owned())), "{page:?}");
        assert!(page.text.contains("<option value=\"true\" selected>"), "{page:?}");
        assert!(
            page.text.contains("Headers are not shown again") && !page.text.contains("s3cret"),
            "{page:?}"
        );
        assert_eq!(form_to(&page.text, "/create").as_deref(), Some("/console/servers/create"));
        assert!(
            attributes(&page.text, "href").contains(&"/console/servers/up".to_owned()),
            "the list stays: {page:?}"
        );
    }
    let page = visitor.post("/console/servers/create", &typed("new", "notaurl", "")).await;
    page.expect(400);
    let whole = "This is not a URL. Give the whole address of the server&#39;s MCP endpoint, such as https://host/mcp.";
    assert!(page.text.contains(whole), "{page:?}");
    let page = visitor.post("/console/servers/create", &typed("new", "http://10.1.2.3/mcp", "")).await;
    page.expect(400);
    let private = "10.1.2.3 is refused: its address is private. Whoever runs the gateway can permit it with an entry in";
    assert!(page.text.contains(private) && !page.text.contains("the whole address"), "{page:?}");
    // the field with the fault is marked, and the fault is in its words
    for (name, url, headers, field, says) in [
        ("", plain, "", "name", "The server needs a name. It is 1 to 32 of a-z"),
        ("A b", plain, "", "name", "This name is not accepted. It is 1 to 32 of a-z"),
        ("new", "", "", "url", "a server of kind http needs a url. Give the whole address"),
        ("new", plain, "X-Key s3cret", "headers", "Line 1 of the headers has no colon: each is a name,"),
        (
            "new",
            plain,
            "X: s3cret\nX: s3cret",
            "headers",
            "Line 2 of the headers has the name of a line before it.",
        ),
    ] {
        let page = visitor.post("/console/servers/create", &typed(name, url, headers)).await;
        page.expect(400);
        assert!(page.text.contains(&format!("<div id=\"fault\">\n\n<p>{says}")), "{page:?}");
        assert!(page.text.contains(&format!("id=\"s-{field}\" aria-invalid=\"true\"")), "{page:?}");
        assert_eq!(page.text.matches("aria-invalid").count(), 1, "{page:?}");
        assert!(!page.text.contains("s3cret"), "{page:?}");
    }
    // whatever is wrong is said at once, in the order of the form
    for (name, says) in [("A b", "This name is not accepted."), ("up", "a server of this name exists")] {
        let page = visitor.post("/console/servers/create", &typed(name, "notaurl", "X-Key s3cret")).await;
        page.expect(400);
        let mut rest = page.text.as_str();
        for says in [says, "This is not a URL.", "Line 1 of the headers has no colon:"] {
            rest = rest.split_once(&format!("<p>{says}")).unwrap_or_else(|| panic!("{says}: {page:?}")).1;
        }
        assert_eq!(page.text.matches("aria-invalid").count(), 3, "{page:?}");
    }
    let headers = "X-One: 1\nfoo\nContent-Length: 5\nX Bad: s3cret\nx-one: 2";
    let page = visitor.post("/console/servers/create", &typed("new", plain, headers)).await;
    page.expect(400);
    for says in [
        "Line 2 of the headers has no colon:",
        "Line 3 of the headers: headers.Content-Length cannot be set:",
        "Line 4 of the headers: headers has a name that is no HTTP header name.",
        "Line 5 of the headers has the name of a line before it.",
    ] {
        assert!(page.text.contains(says) && !page.text.contains("s3cret"), "{says}: {page:?}");
    }
    let stdio = [("name", "A b"), ("kind", "stdio"), ("url", plain), ("headers", "X-One: 1")];
    let page = visitor.post("/console/servers/create", &stdio).await;
    page.expect(400);
    for says in [
        "This name is not accepted.",
        "An address is for a server of kind http.",
        "Headers are for a server of kind http.",
        "A server of kind stdio needs a program.",
    ] {
        assert!(page.text.contains(&format!("<p>{says}")), "{says}: {page:?}");
    }
    for url in ["http://h.example/?key=s3cret", "http://u:s3cret@h.example/"] {
        let page = visitor.post("/console/servers/create", &typed("NO NAME", url, "")).await;
        page.expect(400);
        assert!(page.text.contains("with a secret are not shown again"), "{page:?}");
        assert!(!page.text.contains("s3cret"), "{page:?}");
    }
    for text in HOSTILE {
        let page = visitor.post("/console/servers/create", &typed(text, text, "")).await;
        page.expect(400);
        assert_harmless(&page.text);
    }
    // a server that does not answer is there, and its page says what to do next
    visitor.post("/console/servers/create", &typed("gone", plain, "")).await.expect(303);
    let page = visitor.get("/console/servers/gone").await.text;
    assert!(page.contains("Last error") && page.contains("then press Connect again."), "{page}");
    // no form is shown again to whoever may not send it
    let auditor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    auditor.post("/console/servers/create", &typed("x", plain, "")).await.expect(403);
    assert_eq!(tenant.platform.items("/api/v1/servers").await.len(), 2);
}

#[tokio::test]
async fn a_form_of_settings_keeps_what_was_typed() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add_with("up", &upstream, json!({"limits": {"queue": 9}})).await;
    let version = hidden(&visitor.get("/console/servers/up/settings").await.text, "version");
    let queue =
        async || tenant.platform.get("/api/v1/servers/up").await.expect(200)["limits"]["queue"].clone();
    let send = async |version: &str, limit: &str| {
        let fields = [
            ("version", version),
            ("headers", "X-Key: s3cret"),
            ("credentials", "remove"),
            ("auto_approve", "true"),
            ("limits.queue", limit),
        ];
        visitor.post("/console/servers/up/update", &fields).await
    };
    let assert_kept = |page: &crate::support::Answer, limit: &str| {
        assert_harmless(&page.text);
        assert!(page.text.contains(&format!("name=\"limits.queue\" value=\"{limit}\"")), "{page:?}");
        for chosen in ["remove", "true"] {
            assert!(page.text.contains(&format!("<option value=\"{chosen}\" selected>")), "{page:?}");
        }
        assert!(
            page.text.contains("Headers are not shown again") && !page.text.contains("s3cret"),
            "{page:?}"
        );
    };
    let page = send(&version, "many").await;
    page.expect(400);
    assert!(
        page.text.contains("limits.queue must be a whole number") && page.text.contains("now 9"),
        "{page:?}"
    );
    assert!(page.text.contains("id=\"s-queue\" aria-invalid=\"true\""), "{page:?}");
    assert_kept(&page, "many");
    // whatever is wrong is said at once
    let fields =
        [("version", &*version), ("url", "notaurl"), ("headers", "X-Key s3cret"), ("limits.queue", "many")];
    let page = visitor.post("/console/servers/up/update", &fields).await;
    page.expect(400);
    for says in ["This is not a URL.", "Line 1 of the headers has no colon:", "limits.queue must be a whole"]
    {
        assert!(page.text.contains(&format!("<p>{says}")), "{says}: {page:?}");
    }
    assert_eq!(page.text.matches("aria-invalid").count(), 3, "{page:?}");
    // somebody else is faster
    tenant.platform.patch("/api/v1/servers/up", &json!({"limits": {"queue": 4}})).await.expect(200);
    let page = send(&version, "5").await;
    page.expect(409);
    assert!(page.text.contains("now 4"), "{page:?}");
    assert_kept(&page, "5");
    assert_eq!(queue().await, 4);
    // the form has the version of now
    send(&hidden(&page.text, "version"), "5").await.expect(303);
    assert_eq!(queue().await, 5);
}

#[tokio::test]
async fn a_form_of_settings_takes_nothing_of_others_back() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add_with("up", &upstream, json!({"limits": {"concurrency": 3, "queue": 9}})).await;
    let server = async || tenant.platform.get("/api/v1/servers/up").await.expect(200);
    // the form of a page, with other limits where they are given
    let send = async |page: &str, typed: &[(&str, &str)]| {
        let mut fields = vec![
            ("version".to_owned(), hidden(page, "version")),
            ("was".to_owned(), hidden(page, "was")),
            ("auto_approve".to_owned(), String::new()),
        ];
        for part in page.split("<input ").filter(|part| part.contains("name=\"limits.")) {
            let part = format!(" {part}");
            let name = attributes(&part, "name").remove(0);
            let given = typed.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            fields.push((name, given.unwrap_or_else(|| attributes(&part, "value").remove(0))));
        }
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
        visitor.post("/console/servers/up/update", &fields).await
    };
    let page = visitor.get("/console/servers/up/settings").await.text;
    let theirs = json!({"limits": {"concurrency": 4, "queue": 9}, "auto_approve": true});
    tenant.platform.patch("/api/v1/servers/up", &theirs).await.expect(200);
    // a fault comes first, and hides no conflict
    let faulty = send(&page, &[("limits.queue", "many")]).await;
    faulty.expect(400);
    let late = send(&faulty.text, &[("limits.queue", "8")]).await;
    late.expect(409);
    assert_harmless(&late.text);
    for says in [
        "The server was changed meanwhile.",
        "changed meanwhile: limits.concurrency",
        "changed meanwhile: changed definitions",
        "name=\"limits.queue\" value=\"8\"",
        "name=\"limits.concurrency\" value=\"4\"",
        "as now: approved automatically",
    ] {
        assert!(late.text.contains(says), "{says}: {late:?}");
    }
    assert_eq!(late.text.matches("<li>changed meanwhile: ").count(), 2, "{late:?}");
    assert_eq!(server().await["limits"], theirs["limits"]);
    send(&late.text, &[]).await.expect(303);
    let now = server().await;
    assert_eq!(now["limits"], json!({"concurrency": 4, "queue": 8}));
    assert_eq!(now["auto_approve"], true);
    // what was switched is no field of the form, and says so
    let page = visitor.get("/console/servers/up/settings").await.text;
    tenant.platform.post("/api/v1/servers/up/quarantine", &json!({})).await.expect(200);
    let late = send(&page, &[("limits.queue", "")]).await;
    late.expect(409);
    assert!(late.text.contains("changed meanwhile: state"), "{late:?}");
    send(&late.text, &[]).await.expect(303);
    assert_eq!(server().await["limits"], json!({"concurrency": 4}));
}

#[tokio::test]
async fn a_file_adds_twenty_servers_at_most() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let server = |n: usize| (format!("s{n:02}"), json!({"url": "http://127.0.0.1:1/mcp", "disabled": true}));
    let servers: Map<String, serde_json::Value> = (0..23).map(server).collect();
    let file = json!({ "mcpServers": servers }).to_string();
    for (left, there) in [(3, 20), (0, 23)] {
        let page = visitor.post("/console/servers/import", &[("file", &file)]).await;
        page.expect(200);
        assert_harmless(&page.text);
        assert_eq!(page.text.matches("at most 20 at once").count(), left, "{page:?}");
        assert_eq!(tenant.platform.items("/api/v1/servers").await.len(), there);
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_kept() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let page = visitor.post("/console/servers/import", &[("file", "{\"mcpServers\": {")]).await;
    page.expect(400);
    assert_harmless(&page.text);
    let below = page.text.split("<h2 id=\"import\">").nth(1).unwrap();
    for part in
        ["nothing was added", "What you typed is in the form.", "\n{&#34;mcpServers&#34;: {</textarea>"]
    {
        assert!(below.contains(part), "{part}: {page:?}");
    }
    // what is typed comes back as it is: characters that nobody sees have no marks in a field
    for text in HOSTILE.into_iter().filter(|text| !text.contains('\u{202e}')) {
        let page = visitor.post("/console/servers/import", &[("file", text)]).await;
        page.expect(400);
        assert_harmless(&page.text);
        assert!(page.text.contains(&escaped(text)), "{text}: {page:?}");
    }
}

#[tokio::test]
async fn a_fault_of_a_file_is_in_view_and_answers_have_addresses() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    for n in 0..30 {
        let body = json!({"name": format!("s{n:02}"), "kind": "http", "url": "http://127.0.0.1:1/mcp", "enabled": false});
        tenant.platform.post("/api/v1/servers", &body).await.expect(201);
    }
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let mut browser = Browser::start().await;
    browser.allow_scripts().await;
    browser.set_cookie(&visitor.base, SESSION, &visitor.cookie(SESSION).unwrap()).await;
    let send = "document.querySelector('form[action*=import] button').click()";
    let type_in = |text: &str| format!("document.querySelector('#s-file').value = {}", json!(text));
    let seen = "(() => { const at = document.querySelector('#import-fault').getBoundingClientRect();
        return at.top >= 0 && at.bottom <= innerHeight; })()";
    let place = "location.pathname + location.search + location.hash";
    for width in [1280, 390] {
        browser.resize(width).await;
        for text in ["", "{"] {
            browser.open(&format!("{}/console/servers", visitor.base)).await;
            browser.evaluate(&type_in(text)).await;
            browser.follow(send).await;
            assert_eq!(browser.evaluate(place).await, json!("/console/servers#import"), "{width}");
            assert_eq!(browser.evaluate(seen).await, json!(true), "{width}: {text}");
        }
    }
    browser.evaluate(&type_in("{\"mcpServers\": {\"s00\": {\"url\": \"http://127.0.0.1:1/mcp\"}}}")).await;
    browser.follow(send).await;
    assert_eq!(browser.evaluate(place).await, json!("/console/servers"));
    assert_eq!(browser.evaluate("document.querySelector('h1').textContent").await, json!("Import"));
    browser.close().await;
    // without a script the address is that of the form; it leads to the list, unless a server has the name
    for path in ["/console/servers/import", "/console/servers/create"] {
        let page = visitor.get(path).await;
        assert_eq!((page.status, page.header("location")), (303, "/console/servers"), "{path}");
    }
    let body = json!({"name": "import", "kind": "http", "url": "http://127.0.0.1:1/mcp", "enabled": false});
    tenant.platform.post("/api/v1/servers", &body).await.expect(201);
    visitor.get("/console/servers/import").await.expect(200);
}

/// The form of an override on a page.
fn override_on(page: &str) -> &str {
    page.split_once("/tools/override\"").expect("a form").1.split("</form>").next().unwrap()
}

/// The words that are chosen in a form of an override, in the order of its hints, and its title.
fn said_in(form: &str) -> (Vec<String>, String) {
    let hints = form.split("<select").skip(1).map(|select| {
        let options = select.split("<option").find(|option| option.contains("\" selected>"));
        options.map(|option| attributes(option, "value").remove(0)).unwrap_or_default()
    });
    let title = form.split("name=\"title\"").nth(1).expect("a title");
    (hints.collect(), attributes(title, "value").remove(0))
}

#[tokio::test]
async fn a_form_of_an_override_keeps_what_was_typed() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let upstream = Upstream::handshake(vec![Tool::writes("t")]).await;
    tenant.add("up", &upstream).await;
    let path = "/console/servers/up?tool=t";
    let send = async |page: &str, typed: &[(&'static str, &str)]| {
        let form = override_on(page);
        let names = ["tool", "pin", "version", "was"];
        let values = names.map(|name| hidden(form, name));
        let made_of = names.into_iter().zip(values.iter().map(String::as_str));
        let fields: Vec<_> = made_of.chain(typed.iter().copied()).collect();
        visitor.post("/console/servers/up/tools/override", &fields).await
    };
    let words = |words: [&str; 4]| words.map(str::to_owned).to_vec();
    let first = visitor.get(path).await.text;
    let long = "x".repeat(201);
    for (typed, says) in [
        (vec![], "The override says nothing: choose a value, or give a title."),
        (vec![("readOnlyHint", "true"), ("openWorldHint", "false"), ("title", &*long)], "no longer than 200"),
    ] {
        let page = send(&first, &typed).await;
        page.expect(400);
        assert_harmless(&page.text);
        assert!(page.text.contains(says) && page.text.contains("What you typed is in the form"), "{page:?}");
        let field = |name| typed.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value);
        let expected = words([field("readOnlyHint"), "", "", field("openWorldHint")]);
        assert_eq!(said_in(override_on(&page.text)), (expected, field("title").to_owned()));
    }
    // the definition changes meanwhile: the form is one of the new one, which the page shows
    upstream.set_tools(vec![Tool::annotated("t", r#"{"title": "another one"}"#)]);
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    let typed = [("readOnlyHint", "false"), ("title", "Mine")];
    let page = send(&first, &typed).await;
    page.expect(409);
    assert!(page.text.contains("The tool was changed meanwhile."), "{page:?}");
    assert!(
        page.text.contains("<li>changed meanwhile: the definition") && page.text.contains("another one"),
        "{page:?}"
    );
    assert_eq!(page.text.matches("<li>changed meanwhile").count(), 1, "{page:?}");
    assert_eq!(said_in(override_on(&page.text)), (words(["false", "", "", ""]), "Mine".to_owned()));
    send(&page.text, &typed).await.expect(303);
    // somebody else overrides it meanwhile: that stays where this form says nothing else
    let (mine, theirs) = (visitor.get(path).await.text, visitor.get(path).await.text);
    send(&theirs, &[&typed[..], &[("destructiveHint", "true"), ("openWorldHint", "true")]].concat())
        .await
        .expect(303);
    let page =
        send(&mine, &[("readOnlyHint", "false"), ("title", "Another"), ("openWorldHint", "false")]).await;
    page.expect(409);
    assert_harmless(&page.text);
    for changed in ["May destroy something", "Reaches systems outside its server"] {
        assert!(page.text.contains(&format!("<li>changed meanwhile: {changed}</li>")), "{page:?}");
    }
    let said = said_in(override_on(&page.text));
    assert_eq!(said, (words(["false", "true", "", "false"]), "Another".to_owned()));
    let hints = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"].into_iter();
    let again: Vec<_> =
        hints.zip(said.0.iter().map(String::as_str)).chain([("title", said.1.as_str())]).collect();
    send(&page.text, &again).await.expect(303);
    let now = tenant.platform.items("/api/v1/servers/up/tools").await.remove(0);
    let expected =
        json!({"readOnlyHint": false, "destructiveHint": true, "openWorldHint": false, "title": "Another"});
    assert_eq!(now["override"]["annotations"], expected);
    // no form is shown again to whoever may not send it
    let auditor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    auditor.post("/console/servers/up/tools/override", &[("tool", "t")]).await.expect(403);
}
