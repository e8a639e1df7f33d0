//! Forms as people approve them and as they are sent: the same fields, values, method and target, or nothing.

use serde_json::{Value, json};

use super::execution::{allowed, shop_with, thanks, theme};
use super::form_site::{FormSite, Reply};
use crate::support::{Mcp, Stage};

/// Form that posts, with everything that is sent without an argument of a call.
const ORDER: &str = r##"<!doctype html><title>List</title>
<form id="list" action="/save?do=keep" method="post" wam-policy-output="data interaction"
    wam-intent-function="submit" wam-intent-tool-schema="#list-tool">
  <input type="hidden" name="csrf_token" value="t">
  <input type="hidden" name="step" value="1">
  <label for="color">Color</label> <input id="color" name="color" value="red" dirname="color.dir">
  <input type="hidden" name="color" value="blue">
  <label for="size">Size</label>
  <select id="size" name="size"><option selected>s<option>m</select>
  <label><input type="radio" name="mode" value="a" checked> A</label>
  <label><input type="radio" name="mode" value="b"> B</label>
  <button name="op" value="save">Save</button>
  <button name="op" value="other" formaction="/other">Other</button>
  <script type="application/wam-tool+json" id="list-tool">
  {"name": "change_list", "description": "Change the list.", "parameters": {
    "color": {"type": "string"}, "size": {"type": "string", "enum": ["s", "m"]}, "mode": {"type": "string"}}}
  </script>
</form>"##;

#[tokio::test]
async fn a_request_for_permission_names_everything_that_is_sent() {
    let stage = Stage::start().await;
    let site = FormSite::start(&[
        ("GET /list", Reply::page(ORDER)),
        ("POST /save", thanks()),
        ("POST /other", thanks()),
    ])
    .await;
    let tenant = shop_with(&stage, &site, &["/list"], json!({})).await;
    let agent = tenant.agent().await;
    for (args, told, line, body) in [
        (
            json!({"color": "green"}),
            [
                "/save.",
                "\"Color\" [color] = \"green\"",
                "csrf_token (hidden)",
                "step = \"1\" (hidden)",
                "color = \"blue\" (hidden)",
                "color.dir (writing direction)",
                "[op] = \"save\" (the button",
                "do = \"keep\" (in the address)",
                "\"Size\" [size] = \"s\" (ticked",
                "mode = \"a\" (ticked",
            ]
            .as_slice(),
            "POST /save?do=keep",
            "csrf_token=t&step=1&color=green&color.dir=ltr&color=blue&size=s&mode=a&op=save",
        ),
        (
            json!({"color": "green", "size": "m", "mode": "b", "submit_with": "other"}),
            &["/other.", "[op] = \"other\" (the button", "color = \"blue\" (hidden)"],
            "POST /other",
            "csrf_token=t&step=1&color=green&color.dir=ltr&color=blue&size=m&mode=b&op=other",
        ),
    ] {
        let (request, outcome) = allowed(&tenant, &agent, "shop:change_list", &args).await;
        let reason = request["reason"].as_str().unwrap();
        for part in told {
            assert!(reason.contains(part), "{part}: {reason}");
        }
        assert_eq!(outcome.ok()["structuredContent"]["class"], "accepted");
        let seen = site.take();
        assert_eq!((seen[1].line.as_str(), &*String::from_utf8_lossy(&seen[1].body)), (line, body));
    }
}

#[tokio::test]
async fn nothing_is_sent_that_differs_from_what_was_approved() {
    let stage = Stage::start().await;
    let site = FormSite::start(&[("GET /list", Reply::page(ORDER)), ("POST /save", thanks())]).await;
    let tenant = shop_with(&stage, &site, &["/list"], json!({"execute": "policy"})).await;
    let agent = tenant.agent().await;
    let args = json!({"color": "green", "submit_with": "save"});
    let call = async || Mcp::bare(&agent).run("destructive", "shop:change_list", &args).await;
    for (was, is) in [
        // values of the page
        (r#"name="step" value="1""#, r#"name="step" value="2""#),
        (r#"name="color" value="blue""#, r#"name="color" value="black""#),
        (r#"value="red""#, r#"value="pink""#),
        ("<option selected>s<option>m", "<option>s<option selected>m"),
        (r#"value="a" checked"#, r#"value="a""#),
        (r#"value="b""#, r#"value="b" checked"#),
        // entries and targets
        (r#" dirname="color.dir""#, ""),
        ("?do=keep", "?do=other"),
        (r#"formaction="/other""#, r#"formaction="/save""#),
        (r#"formaction="/other""#, r#"formaction="/other" formmethod="get""#),
        (r#"value="save">Save"#, r#"value="save">Keep"#),
        (r#"name="op" value="save">Save"#, r#"name="op" value="other">Save"#),
        (r#"<button name="op" value="save">"#, r#"<button name="op" value="save" disabled>"#),
        // fields of the tool
        (r#""color": {"type": "string"}, "#, ""),
        (r#"<label for="color">Color"#, r#"<label for="color">PIN"#),
    ] {
        let changed = ORDER.replace(was, is);
        assert_ne!(changed, ORDER, "{was}");
        site.put("GET /list", Reply::page(&changed));
        call().await.refused("tool_changed");
        assert_eq!(site.lines(), ["GET /list"], "{was} -> {is}");
    }
    let swapped = ORDER.replace(">Save<", ">X<").replace(">Other<", ">Save<").replace(">X<", ">Other<");
    site.put("GET /list", Reply::page(&swapped));
    call().await.refused("tool_changed");
    assert_eq!(site.lines(), ["GET /list"]);
    // a token is another one each time
    site.put("GET /list", Reply::page(&ORDER.replace(r#"value="t""#, r#"value="u""#)));
    call().await.ok();
    assert_eq!(site.lines(), ["GET /list", "POST /save?do=keep"]);
}

#[tokio::test]
async fn a_value_that_is_too_long_to_be_shown_is_fixed_all_the_same() {
    let stage = Stage::start().await;
    let page = |end: &str| {
        let terms = format!("{}{end}", "terms ".repeat(60));
        let more = format!(r#"<input type="hidden" name="terms" value="{terms}">"#);
        Reply::page(&theme("t", &more))
    };
    let site = FormSite::start(&[("GET /list", page("of today")), ("POST /theme", thanks())]).await;
    let tenant = shop_with(&stage, &site, &["/list"], json!({"execute": "policy"})).await;
    let agent = tenant.agent().await;
    let call = async || Mcp::bare(&agent).run("destructive", "shop:set_theme", &json!({"color": "x"})).await;
    call().await.ok();
    assert_eq!(site.lines(), ["GET /list", "POST /theme"]);
    site.put("GET /list", page("of tomorrow"));
    call().await.refused("tool_changed");
    assert_eq!(site.lines(), ["GET /list"]);
}

#[tokio::test]
async fn a_call_gives_a_value_for_each_control_of_a_field() {
    let stage = Stage::start().await;
    let page = r#"<form id="pick" action="/send"><input name="who" value="e"><input name="who" value="m">
        <select name="kind"><option>a<option>b</select><button>Go</button></form>"#;
    let site = FormSite::start(&[("GET /pick", Reply::page(page)), ("GET /send", thanks())]).await;
    let sources = json!({"sources": ["forms"], "execute": "policy"});
    let tenant = shop_with(&stage, &site, &["/pick"], sources).await;
    let agent = tenant.agent().await;
    let call = async |args: Value| Mcp::bare(&agent).run("destructive", "shop:pick", &args).await;
    for to in [json!(["alice"]), json!([])] {
        let result = call(json!({"who": to})).await.result();
        assert_eq!(result["structuredContent"]["class"], "validation_error", "{result}");
        assert_eq!(result["structuredContent"]["errors"][0]["field"], "who", "{result}");
        assert_eq!(site.lines(), ["GET /pick"], "{to}");
    }
    call(json!({"who": ["alice", "bob"]})).await.ok();
    assert_eq!(site.lines(), ["GET /pick", "GET /send?who=alice&who=bob&kind=a"]);
}

#[tokio::test]
async fn a_disabled_button_is_not_pressed() {
    let stage = Stage::start().await;
    let page = r#"<form id="find" role="search" method="post" action="/go"><button disabled>x</button>
        <input name="q"><button formmethod="get">Search</button></form>"#;
    let site =
        FormSite::start(&[("GET /", Reply::page(page)), ("GET /go", thanks()), ("POST /go", thanks())]).await;
    let tenant = shop_with(&stage, &site, &["/"], json!({"sources": ["forms"]})).await;
    let agent = tenant.agent().await;
    Mcp::bare(&agent).run("read", "shop:find", &json!({"q": "x"})).await.ok();
    assert_eq!(site.lines(), ["GET /", "GET /go?q=x"]);
    // the button that posts is another form than the approved one
    site.put("GET /", Reply::page(&page.replace("<button disabled>", "<button>")));
    Mcp::bare(&agent).run("read", "shop:find", &json!({"q": "x"})).await.refused("tool_changed");
    assert_eq!(site.lines(), ["GET /"]);
}

#[tokio::test]
async fn a_description_that_hides_what_is_ticked_asks_each_time() {
    let stage = Stage::start().await;
    let page = r##"<form id="find" action="/go" wam-policy-output="data interaction" wam-intent-function="search"
        wam-intent-tool-schema="#s"><input name="q"><input type="checkbox" name="ads" checked>
        <script type="application/wam-tool+json" id="s">{"name": "find", "parameters": {"q": {"type": "string"}}}</script>
        <button>Go</button></form>"##;
    let site = FormSite::start(&[("GET /", Reply::page(page)), ("GET /go", thanks())]).await;
    let tenant = shop_with(&stage, &site, &["/"], json!({"execute": "policy"})).await;
    let agent = tenant.agent_with(json!({"policy_mode": "observe"})).await;
    let (request, outcome) = allowed(&tenant, &agent, "shop:find", &json!({"q": "x"})).await;
    assert!(request["reason"].as_str().unwrap().contains("ads = \"on\" (ticked"), "{request}");
    outcome.ok();
    assert_eq!(site.lines(), ["GET /", "GET /go?q=x&ads=on"]);
}

#[tokio::test]
async fn arguments_that_cannot_be_checked_are_not_sent() {
    let stage = Stage::start().await;
    // each of them can be used, and all together are larger than those of a schema may be; equal ones would count once
    let field = |at| format!(r#"<input name="f{at}" pattern="[ab]*a[ab]{{14}}[ab]{{0,{}}}">"#, 2000 + at);
    let fields: String = (0..32).map(field).collect();
    let page = |fields: &str| {
        Reply::page(&format!(r#"<form id="find" action="/go">{fields}<button>Go</button></form>"#))
    };
    let site = FormSite::start(&[
        ("GET /", page(&fields)),
        ("GET /one", page(r#"<input name="q" pattern="(?=x).*"><input type="checkbox" name="ads" checked>"#)),
        ("GET /go", thanks()),
    ])
    .await;
    let sources = json!({"sources": ["forms"], "execute": "policy"});
    let tenant = shop_with(&stage, &site, &["/", "/one"], sources).await;
    let agent = tenant.agent().await;
    let call = async |tool, args: Value| Mcp::bare(&agent).run("destructive", tool, &args).await;
    // a value that fits: what is refused is that nobody could tell
    let fits = call("shop:find", json!({"f1": "a".repeat(15)})).await.refused("invalid_arguments");
    assert!(fits["message"].as_str().unwrap().contains("could not be checked"), "{fits}");
    call("shop:find_2", json!({"q": "xy", "news": false})).await.refused("invalid_arguments");
    call("shop:find_2", json!({"q": "xy", "ads": null})).await.refused("invalid_arguments");
    assert_eq!(site.lines(), [""; 0]);
    call("shop:find_2", json!({"q": "xy", "ads": false})).await.ok();
    assert_eq!(site.lines(), ["GET /one", "GET /go?q=xy"]);
}
