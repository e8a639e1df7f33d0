//! Settings of a tenant: seen with their origin, changed by version, and nobody's but an admin's.

use serde_json::{Value, json};

use super::markup::{HOSTILE, assert_harmless, attributes, escaped, form_to, hidden, led_to, notice_on};
use crate::support::{Stage, Upstream, Visitor, upstream};

/// The fields of the form, as a browser sends them back.
fn fields(page: &str) -> Vec<(String, String)> {
    let mut found =
        vec![("version".to_owned(), hidden(page, "version")), ("was".to_owned(), hidden(page, "was"))];
    for part in page.split("<select ").skip(1) {
        let part = part.split("</select>").next().unwrap();
        let chosen = part.split("<option ").find(|option| option.contains(" selected"));
        let value =
            chosen.map(|option| attributes(&format!(" {option}"), "value").remove(0)).unwrap_or_default();
        found.push((attributes(part, "name").remove(0), value));
    }
    for part in page.split("<textarea ").skip(1) {
        let name = attributes(part, "name").remove(0);
        let text = part.split_once(">\n").unwrap().1.split("</textarea>").next().unwrap();
        found.push((name, text.replace("&#34;", "\"")));
    }
    found
}

/// Sends the form of a page with changes.
async fn send(visitor: &Visitor, page: &str, changes: &[(&str, &str)]) -> crate::support::Answer {
    let mut all = fields(page);
    for (name, value) in changes {
        let field = all.iter_mut().find(|(known, _)| known == name).unwrap();
        (*value).clone_into(&mut field.1);
    }
    let all: Vec<(&str, &str)> = all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    visitor.post(&form_to(page, "/settings/update").unwrap(), &all).await
}

#[tokio::test]
async fn settings_change_and_say_who_was_faster() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let page = visitor.get("/console/settings").await;
    page.expect(200);
    assert_harmless(&page.text);
    let read = async || tenant.platform.get("/api/v1/settings").await.expect(200);
    let before = read().await;
    for name in before.as_object().unwrap().keys().filter(|name| *name != "version") {
        assert!(page.text.contains(&format!(" name=\"{name}\"")), "{name}: {page:?}");
    }
    for says in [
        "a whole number of days from 1 to 3650; empty inherits",
        "Days after which activity records are deleted.",
        ">observe: they run, and so do those that a rule without &#34;enforced&#34; would ask about or deny; the log says what would have been done</option>",
        ">inherit (now observe)</option>",
    ] {
        assert!(page.text.contains(says), "{says}: {page:?}");
    }
    // a form that changes nothing sets nothing
    let done = send(&visitor, &page.text, &[]).await;
    assert!(done.header("location").starts_with("/console/settings?done="), "{done:?}");
    let shown = visitor.get(done.header("location")).await.text;
    assert!(shown.contains("Nothing differed; nothing was changed."), "{shown}");
    let same = read().await;
    assert!(same.as_object().unwrap().values().all(|member| member["origin"] != "tenant"), "{same}");

    let page = visitor.get("/console/settings").await.text;
    let changes = [
        ("max_operation", "write"),
        ("rate_limit", "600"),
        ("allowed_tools", "[\"up:*\"]"),
        ("direct_endpoint", "false"),
    ];
    let done = send(&visitor, &page, &changes).await;
    assert_eq!(done.status, 303);
    let shown = visitor.get(done.header("location")).await.text;
    assert!(shown.contains("Changed: max_operation, allowed_tools, direct_endpoint, rate_limit."), "{shown}");
    // a notice that somebody made up is none
    let foreign = done.header("location").replace("Changed", "Removed");
    for path in ["/console/settings?done=evil", &foreign] {
        let shown = visitor.get(path).await;
        shown.expect(200);
        assert!(!shown.text.contains("role=\"status\""), "{shown:?}");
    }
    let now = read().await;
    for (name, value) in [
        ("max_operation", json!("write")),
        ("rate_limit", json!(600)),
        ("allowed_tools", json!(["up:*"])),
        ("direct_endpoint", json!(false)),
    ] {
        assert_eq!(now[name], json!({"value": value, "origin": "tenant"}));
    }
    let record = tenant.records("tool=settings.update&source=console&status=success", 2).await.remove(0);
    let recorded: Value = serde_json::from_str(record["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(recorded["body"]["max_operation"], "write", "{record}");
    assert!(recorded["body"].get("locale").is_none(), "{record}");

    // somebody else is faster: nothing is lost, and the page says what they changed
    let mine = visitor.get("/console/settings").await.text;
    tenant.platform.patch("/api/v1/settings", &json!({"rate_limit": 5})).await.expect(200);
    let late = send(&visitor, &mine, &[("max_operation", "read")]).await;
    late.expect(409);
    assert_harmless(&late.text);
    assert!(
        late.text.contains("Settings were changed meanwhile")
            && late.text.contains("changed meanwhile: rate_limit")
            && !late.text.contains("changed meanwhile: max_operation"),
        "{late:?}"
    );
    assert_eq!(read().await["max_operation"]["value"], "write");
    // what was typed is in the form, beside what they did
    let form = fields(&late.text);
    assert!(
        form.contains(&("max_operation".to_owned(), "read".to_owned()))
            && form.contains(&("rate_limit".to_owned(), "5".to_owned())),
        "{form:?}"
    );
    send(&visitor, &late.text, &[]).await.expect(303);
    let now = read().await;
    assert_eq!((&now["max_operation"]["value"], &now["rate_limit"]["value"]), (&json!("read"), &json!(5)));
    let page = visitor.get("/console/settings").await.text;
    send(&visitor, &page, &[("rate_limit", "")]).await.expect(303);
    assert_eq!(read().await["rate_limit"]["origin"], before["rate_limit"]["origin"]);
    for (name, value, says) in [
        ("rate_limit", "many", "rate_limit must be"),
        ("rate_limit", "0", "rate_limit must be"),
        (
            "activity_retention_days",
            "0",
            "activity_retention_days must be a whole number of days from 1 to 3650; leave it empty to inherit",
        ),
        (
            "allowed_tools",
            "files",
            "allowed_tools must be a JSON list, such as [&#34;files:*&#34;]: globs on",
        ),
        ("allowed_tools", "7", "allowed_tools must be a JSON list, such as [&#34;files:*&#34;]: globs on"),
        ("host_prompts", "write", "host_prompts must be a JSON list, such as [&#34;write&#34;]"),
        ("locale", "xx", "locale must be"),
        ("version", "", "no version"),
    ] {
        let refused = send(&visitor, &visitor.get("/console/settings").await.text, &[(name, value)]).await;
        refused.expect(400);
        assert!(refused.text.contains(says), "{refused:?}");
        assert_harmless(&refused.text);
        if name != "version" {
            // the message is at the field, and what was typed is in it
            assert_eq!(refused.text.matches(says).count(), 1, "{refused:?}");
            assert!(refused.text.contains("What you typed is in the form."), "{refused:?}");
        }
        if !["version", "locale"].contains(&name) {
            assert!(fields(&refused.text).contains(&(name.to_owned(), value.to_owned())), "{refused:?}");
            assert!(refused.text.contains(&format!("id=\"s-{name}\" aria-invalid=\"true\"")), "{refused:?}");
            send(&visitor, &refused.text, &[(name, "")]).await.expect(303);
        }
    }
    // every value that is not accepted is said at once, at its field and with a link to it
    let page = visitor.get("/console/settings").await.text;
    let faulty = [("rate_limit", "0"), ("host_prompts", "write"), ("locale", "xx")];
    let refused = send(&visitor, &page, &[&faulty[..], &[("response_limit", "7")]].concat()).await;
    refused.expect(400);
    assert!(refused.text.contains("3 values were not accepted: "), "{refused:?}");
    for (name, _) in faulty {
        assert!(refused.text.contains(&format!("<a href=\"#s-{name}\">{name}</a>")), "{refused:?}");
        assert!(refused.text.contains(&format!("id=\"s-{name}\" aria-invalid=\"true\"")), "{refused:?}");
    }
    assert_eq!(refused.text.matches("aria-invalid").count(), 3, "{refused:?}");
    // what is typed comes back as it is: characters that nobody sees have no marks in a field
    for text in HOSTILE.into_iter().filter(|text| !text.contains('\u{202e}')) {
        let page = visitor.get("/console/settings").await.text;
        let refused = send(&visitor, &page, &[("rate_limit", text), ("locale", text)]).await;
        refused.expect(400);
        assert_harmless(&refused.text);
        assert!(refused.text.contains(&escaped(text)), "{text}: {refused:?}");
    }
}

#[tokio::test]
async fn settings_of_one_key_change_on_their_page() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (admin, agent) = (tenant.admin().await, tenant.agent().await);
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    let (key, path) = (format!("/console/keys/{}", agent.id), format!("/console/keys/{}/settings", agent.id));
    assert!(attributes(&visitor.get(&key).await.text, "href").contains(&path));
    let page = visitor.get(&path).await;
    page.expect(200);
    assert_harmless(&page.text);
    assert!(
        page.text.contains("What holds for this key alone.") && !page.text.contains("response_limit"),
        "{page:?}"
    );
    let changes = [("unannotated_tools", "distrust"), ("max_operation", "read"), ("rate_limit", "7")];
    let done = send(&visitor, &page.text, &changes).await;
    assert_eq!(led_to(&done), (303, &*path));
    let shown = visitor.get(done.header("location")).await.text;
    assert_eq!(notice_on(&shown), "Changed: unannotated_tools, max_operation, rate_limit.");
    let read = async || tenant.platform.get(&format!("/api/v1/keys/{}/settings", agent.id)).await.expect(200);
    let now = read().await;
    assert_eq!(now["unannotated_tools"], json!({"value": "distrust", "origin": "key"}));
    assert_eq!(now["rate_limit"], json!({"value": 7, "origin": "key"}));
    let record = tenant.records("tool=keys.settings&source=console&status=success", 1).await.remove(0);
    let recorded: Value = serde_json::from_str(record["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(recorded["body"]["max_operation"], "read", "{record}");
    // a fault, and somebody who is faster
    let mine = visitor.get(&path).await.text;
    let refused = send(&visitor, &mine, &[("rate_limit", "0"), ("max_operation", "all")]).await;
    refused.expect(400);
    assert!(refused.text.contains("2 values were not accepted: "), "{refused:?}");
    assert_eq!(form_to(&refused.text, "/settings/update"), Some(format!("{path}/update")));
    tenant
        .platform
        .patch(&format!("/api/v1/keys/{}/settings", agent.id), &json!({"rate_limit": 5}))
        .await
        .expect(200);
    let late = send(&visitor, &mine, &[("locale", "de")]).await;
    late.expect(409);
    assert!(late.text.contains("changed meanwhile: rate_limit"), "{late:?}");
    send(&visitor, &late.text, &[("rate_limit", "")]).await.expect(303);
    let now = read().await;
    assert_eq!((&now["rate_limit"]["origin"], &now["locale"]["value"]), (&json!("deployment"), &json!("de")));
    // nobody else's, and none of another tenant
    let other = stage.tenant("other").await;
    let stranger = Visitor::with_key(&stage.gateway, &other.admin().await).await;
    for path in
        [&*path, "/console/keys/x/settings", "/console/keys/0199aaaa-0000-7000-8000-000000000001/settings"]
    {
        stranger.get(path).await.expect(404);
        stranger
            .post(&format!("{path}/update"), &[("version", "0"), ("was", "{}"), ("locale", "de")])
            .await
            .expect(404);
    }
    for low in [tenant.auditor().await, tenant.operator().await, agent] {
        let visitor = Visitor::with_key(&stage.gateway, &low).await;
        visitor.get(&path).await.expect(403);
        visitor.post(&format!("{path}/update"), &[("version", "0"), ("was", "{}")]).await.expect(403);
    }
}

#[tokio::test]
async fn a_list_that_allows_no_tool_is_warned_about() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let warning =
        "allowed_tools matches none of the 6 tools that are known and not blocked now: no key sees a tool.";
    for (list, is_warned, meant) in [
        (r#"["op-"]"#, true, ""),
        (r#"["zop:*"]"#, true, " Did you mean &#39;zoo:*&#39;?"),
        (r#"["zop:*", "zoo:read*"]"#, false, ""),
        ("", false, ""),
    ] {
        let page = visitor.get("/console/settings").await.text;
        let done = send(&visitor, &page, &[("allowed_tools", list)]).await;
        done.expect(303);
        let shown = visitor.get(done.header("location")).await.text;
        let notice = format!("Changed: allowed_tools. But {warning}{meant}");
        assert_eq!(shown.contains(&notice), is_warned, "{shown}");
        let again = visitor.get("/console/settings").await.text;
        assert_eq!(again.contains(&format!("In force: {warning}{meant}")), is_warned, "{again}");
        assert_harmless(&shown);
    }
}

#[tokio::test]
async fn settings_are_for_admins_alone_and_stay_texts() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    for low in
        [tenant.agent().await, tenant.auditor().await, tenant.operator().await, tenant.approver().await]
    {
        let visitor = Visitor::with_key(&stage.gateway, &low).await;
        let page = visitor.get("/console/settings").await;
        page.expect(403);
        assert!(!attributes(&page.text, "href").contains(&"/console/settings".to_owned()), "{page:?}");
        let fields = [("version", "0"), ("was", "{}"), ("max_operation", "read")];
        visitor.post("/console/settings/update", &fields).await.expect(403);
        for what in ["settings.get", "settings.update"] {
            tenant.records(&format!("tool={what}&source=console&status=blocked&key={}", low.id), 1).await;
        }
    }
    assert_eq!(
        tenant.platform.get("/api/v1/settings").await.expect(200)["max_operation"]["origin"],
        "deployment"
    );
    let platform = Visitor::with_key(&stage.gateway, &stage.platform()).await;
    platform.get("/console/settings").await.expect(403);
    tenant.platform.patch("/api/v1/settings", &json!({"allowed_tools": HOSTILE})).await.expect(200);
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let page = visitor.get("/console/settings").await.text;
    let shown = page.split("<textarea ").next().unwrap();
    assert_harmless(shown);
    assert!(
        HOSTILE.iter().filter(|text| !text.contains('"')).all(|text| page.contains(&escaped(text))),
        "{page}"
    );
}

#[tokio::test]
async fn a_value_that_does_not_count_is_shown_and_can_be_taken_back() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let key = tenant.agent().await;
    let of_key = format!("/console/keys/{}/settings", key.id);
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let given = |page: &str, name: &str| {
        fields(page).into_iter().find(|(known, _)| known == name).map(|(_, value)| value).unwrap()
    };
    for (path, name, outer, own, origin) in [
        (of_key.as_str(), "max_operation", json!("read"), "destructive", "tenant"),
        (&of_key, "rate_limit", json!(500), "1000", "tenant"),
        ("/console/settings", "activity_retention_days", json!(null), "3000", "deployment"),
    ] {
        let page = visitor.get(path).await.text;
        if !outer.is_null() {
            tenant.platform.patch("/api/v1/settings", &json!({ name: outer })).await.expect(200);
        }
        let done = send(&visitor, &page, &[(name, own)]).await;
        let page = visitor.get(done.header("location")).await.text;
        assert_harmless(&page);
        let notice =
            format!("Changed: {name}. But what does not count, since an outer value is narrower: {name}.");
        assert_eq!(notice_on(&page), notice, "{page}");
        assert_eq!(given(&page, name), own, "{page}");
        assert!(page.contains(&format!("Does not count, since that of the {origin} is narrower.")), "{page}");
        send(&visitor, &page, &[(name, "")]).await.expect(303);
        let page = visitor.get(path).await.text;
        assert_eq!(given(&page, name), "", "{page}");
        assert!(!page.contains("Does not count"), "{page}");
    }
    // lists that leave a key without tools
    let warned = async |own: &str| {
        let page = visitor.get(&of_key).await.text;
        let done = send(&visitor, &page, &[("allowed_tools", own)]).await;
        visitor.get(done.header("location")).await.text
    };
    let page = warned("[\"nothere:*\"]").await;
    assert!(
        page.contains("matches none of the 6 tools that are known and not blocked now: the key sees no tool"),
        "{page}"
    );
    tenant.platform.patch("/api/v1/settings", &json!({"allowed_tools": ["zoo:reader"]})).await.expect(200);
    let page = warned("[\"zoo:w*\"]").await;
    assert_eq!(page.matches("no tool in common with those of the tenant").count(), 2, "{page}");
    let page = warned("[\"zoo:r*\"]").await;
    assert!(!page.contains("in common") && !page.contains("matches none"), "{page}");
    // a narrower list of the tenant names the keys that it leaves without tools
    let narrowed = async |own: &str| {
        let page = visitor.get("/console/settings").await.text;
        let done = send(&visitor, &page, &[("allowed_tools", own)]).await;
        visitor.get(done.header("location")).await.text
    };
    let page = narrowed("[\"zoo:w*\"]").await;
    assert_eq!(
        page.matches("no tool in common with the lists that hold as well see none: agent.").count(),
        2,
        "{page}"
    );
    let page = narrowed("[\"zoo:*\"]").await;
    assert!(!page.contains("in common"), "{page}");
}
