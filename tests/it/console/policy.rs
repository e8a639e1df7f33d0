//! The policy of a tenant: who sees it, who changes it, and why a call is decided as it is.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::markup::{HOSTILE, assert_harmless, attributes, escaped, form_to, hidden};
use crate::support::{Api, Gateway, Stage, Upstream, Visitor, settle, upstream};

const SOON: Duration = Duration::from_secs(5);
const PATH: &str = "/console/policy";
const UPDATE: &str = "/console/policy/update";

/// The rules in the form of a page, as they would be sent.
fn edited(page: &str) -> Value {
    let (_, rest) = page.split_once("<textarea id=\"p-rules\"").expect("the form");
    let text = rest.split_once(">\n").unwrap().1.split("</textarea>").next().unwrap();
    let text = [("&#60;", "<"), ("&#62;", ">"), ("&#34;", "\""), ("&#39;", "'"), ("&#38;", "&")]
        .iter()
        .fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain));
    serde_json::from_str(&text).expect("JSON")
}

async fn in_force(api: &Api) -> Value {
    api.get("/api/v1/policy").await.expect(200)
}

#[tokio::test]
async fn rules_are_changed_here_and_a_conflict_shows_both() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let other = Gateway::start(&stage.database, &[]).await;
    let admin = tenant.admin().await;
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    let empty = visitor.get(PATH).await;
    empty.expect(200);
    assert!(
        empty.text.contains("There is no version yet") && empty.text.contains("<dd>observe</dd>"),
        "{empty:?}"
    );
    for (mode, means) in
        [("observe", "they run, and so do those that a rule"), ("deny_unless_allowed", "they are refused")]
    {
        let line = format!("<dt>{mode}</dt><dd class=\"meaning\">{means}");
        assert!(empty.text.contains(&line), "{line}: {empty:?}");
    }
    assert_eq!((edited(&empty.text), hidden(&empty.text, "version")), (json!([]), "0".to_owned()));
    let first = json!([{"id": "no-drop", "effect": "deny", "match": {"tool": "pg:drop"}}]);
    let send = async |version: &str, mode: &str, rules: &Value| {
        // as browsers send it
        let rules = serde_json::to_string_pretty(rules).unwrap().replace('\n', "\r\n");
        visitor.post(UPDATE, &[("version", version), ("mode", mode), ("rules", &rules)]).await
    };
    let done = send("0", "by_risk", &first).await;
    let notice = done.header("location");
    assert!(done.status == 303 && notice.starts_with("/console/policy?done="), "{done:?}");
    let saved = visitor.get(notice).await.text;
    assert!(saved.contains("Saved: version 1 is in force."), "{saved}");
    assert_harmless(&saved);
    let colleague = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let seen = colleague.get(notice).await.text;
    assert!(!seen.contains("Saved: "), "somebody else saved it: {seen}");
    let policy = in_force(&admin).await;
    assert_eq!(
        (&policy["version"], &policy["mode"], &policy["rules"]),
        (&json!(1), &json!("by_risk"), &first)
    );
    let record = tenant.records("tool=policy.update&source=console&status=success", 1).await.remove(0);
    let recorded: Value = serde_json::from_str(record["arguments"].as_str().unwrap()).unwrap();
    assert_eq!((&record["type"], &recorded["body"]["mode"]), (&json!("policy"), &json!("by_risk")));
    let page = visitor.get(PATH).await.text;
    assert!(page.contains("matches no tool that is known now"), "a warning: {page}");
    let key = admin.get(&format!("/api/v1/keys/{}", admin.id)).await.expect(200);
    let [owner, name] = ["owner", "name"].map(|member| key[member].as_str().unwrap());
    let by = format!("<td data-is=\"By\" title=\"{}\">{owner} (key {name})</td>", admin.id);
    assert!(page.contains(&by), "who made the version: {page}");
    assert_eq!(edited(&page), first);

    // somebody else is faster
    let theirs = json!([{"id": "theirs", "effect": "ask"}]);
    let body = json!({"version": 1, "rules": theirs});
    other.ask_as(&admin).ask(Method::PUT, "/api/v1/policy", Some(&body)).await.expect(200);
    let mine = json!([{"id": "mine", "effect": "allow"}]);
    let refused = send(&hidden(&page, "version"), "", &mine).await;
    refused.expect(409);
    assert!(
        refused.text.contains("nothing was saved") && refused.text.contains("In force now"),
        "{refused:?}"
    );
    assert_eq!(edited(&refused.text), mine);
    assert!(refused.text.contains("&#34;theirs&#34;"), "{refused:?}");
    let meanwhile = format!("The policy was changed meanwhile (version 2 by {owner} (key {name}), 20");
    assert!(refused.text.contains(&meanwhile), "who, even where it was oneself: {refused:?}");
    assert_eq!(in_force(&admin).await["rules"], theirs);
    // a check of an older draft does not make it a newer one
    let fields = [("version", "1"), ("mode", ""), ("rules", "[]")];
    let checked = visitor.post(&format!("{PATH}/check"), &fields).await;
    checked.expect(200);
    assert_eq!(hidden(&checked.text, "version"), "1");
    send(&hidden(&checked.text, "version"), "", &json!([])).await.expect(409);
    send(&hidden(&refused.text, "version"), "", &mine).await.expect(303);
    assert_eq!(
        (&in_force(&admin).await["rules"], &in_force(&admin).await["mode"]),
        (&mine, &json!("by_risk"))
    );

    // and back to an earlier version
    let page = visitor.get(PATH).await.text;
    let earlier = attributes(&page, "href").into_iter().find(|href| href.ends_with("?version=1")).unwrap();
    let earlier = visitor.get(&earlier).await.text;
    assert_eq!((edited(&earlier), hidden(&earlier, "version")), (first.clone(), "3".to_owned()));
    assert!(
        earlier.contains("the rules of version 1") && earlier.contains("value=\"by_risk\" selected"),
        "{earlier}"
    );
    for (query, status) in [("version=9", 404), ("version=0", 400), ("version=x", 400), ("odd=1", 400)] {
        visitor.get(&format!("{PATH}?{query}")).await.expect(status);
    }
    for (rules, says) in [
        ("[", "rules is no JSON"),
        ("{}", "rules must be a list"),
        (r#"[{"id":"a","effect":"den"}]"#, "rules[0].effect"),
        (r#"[{"id":"a","effect":"deny","when":"args.n >"}]"#, "rules[0].when"),
    ] {
        let refused = visitor.post(UPDATE, &[("version", "3"), ("mode", ""), ("rules", rules)]).await;
        refused.expect(400);
        assert!(refused.text.contains(says) && refused.text.contains(&escaped(rules)), "{says}: {refused:?}");
    }
    assert_eq!(in_force(&admin).await["version"], 3);
    // YAML, as `policy apply` reads it
    assert!(page.contains("id: ask-before-github-deletes"), "an example: {page}");
    let rules = "mode: observe\r\nrules:\r\n- id: yaml\r\n  effect: ask\r\n  match: {tool: \"pg:*\", tier: destructive}\r\n";
    visitor.post(UPDATE, &[("version", "3"), ("mode", ""), ("rules", rules)]).await.expect(303);
    let policy = in_force(&admin).await;
    assert_eq!(
        (&policy["mode"], &policy["rules"][0]["match"]["tier"]),
        (&json!("observe"), &json!("destructive"))
    );
}

#[tokio::test]
async fn long_rules_fit_into_the_form_and_longer_ones_do_not() {
    let stage = Stage::start().await;
    let admin = stage.tenant("acme").await.admin().await;
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    let rule = |n: usize| json!({"id": format!("r{n}"), "effect": "deny", "match": {"tool": format!("pg:t{n}")}, "message": "m".repeat(80)});
    let rules = Value::from((0..200).map(rule).collect::<Vec<_>>()).to_string();
    assert!(rules.len() > 16 * 1024);
    visitor.post(UPDATE, &[("version", "0"), ("mode", ""), ("rules", &rules)]).await.expect(303);
    let page = visitor.get(PATH).await.text;
    let again = edited(&page).to_string();
    visitor.post(UPDATE, &[("version", "1"), ("mode", ""), ("rules", &again)]).await.expect(303);
    let large = "x".repeat(300 * 1024);
    let csrf = visitor.csrf().await;
    let form = |path, field, value: &str| visitor.form(path, &[("csrf", csrf.as_str()), (field, value)]);
    assert_eq!(visitor.send(form(UPDATE, "rules", &large)).await.status, 413);
    assert_eq!(visitor.send(form("/console/keys/create", "name", &rules)).await.status, 413);
    let nobody = Visitor::of(&stage.gateway);
    for rules in [&rules, &large] {
        let ended = nobody.send(nobody.form(UPDATE, &[("rules", rules.as_str())])).await;
        assert_eq!((ended.status, ended.header("location")), (303, "/console/login?form_lost=1"));
    }
    // what was made elsewhere and is longer is shown, and not edited
    let rules: Vec<Value> = (0..400).map(|n| json!({"id": format!("r{n}"), "effect": "deny", "match": {"tool": format!("pg:t{n}")}, "message": "m".repeat(150)})).collect();
    let body = json!({"version": 2, "rules": rules});
    admin.ask(Method::PUT, "/api/v1/policy", Some(&body)).await.expect(200);
    let page = visitor.get(PATH).await.text;
    assert!(
        page.contains("too long for this form")
            && page.contains("r399")
            && form_to(&page, "/update").is_none()
    );
}

#[tokio::test]
async fn roles_see_and_change_policies_as_over_the_api() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let body = json!({"version": 0, "rules": [{"id": "own-rule", "effect": "ask"}]});
    tenant.platform.ask(Method::PUT, "/api/v1/policy", Some(&body)).await.expect(200);
    let fields = [("version", "1"), ("mode", ""), ("rules", "[]")];
    for (api, sees) in [
        (tenant.auditor().await, true),
        (tenant.operator().await, true),
        (tenant.agent().await, false),
        (tenant.approver().await, false),
    ] {
        let visitor = Visitor::with_key(&stage.gateway, &api).await;
        let page = visitor.get(PATH).await;
        page.expect(if sees { 200 } else { 403 });
        assert_eq!(page.text.contains("own-rule"), sees, "{page:?}");
        assert!(form_to(&page.text, "/update").is_none(), "{page:?}");
        let links = attributes(&visitor.get("/console").await.text, "href");
        assert_eq!(links.contains(&PATH.to_owned()), sees);
        visitor.post(UPDATE, &fields).await.expect(403);
        for verb in ["check", "explain"] {
            let asked = visitor
                .post(&format!("{PATH}/{verb}"), &[("version", "1"), ("rules", "[]"), ("tool", "a:b")])
                .await;
            assert_eq!(asked.status == 403, !sees, "{verb}: {asked:?}");
        }
    }
    let refused = async |query: &str| {
        let items =
            tenant.platform.items(&format!("/api/v1/activity?source=console&status=blocked&{query}")).await;
        items.len()
    };
    settle(4, SOON, || refused("tool=policy.update")).await;
    settle(2, SOON, || refused("tool=policy.get")).await;
    assert_eq!(in_force(&tenant.platform).await["version"], 1);
    // another tenant has a policy of its own, and the platform operator none
    let stranger = Visitor::with_key(&stage.gateway, &stage.tenant("other").await.admin().await).await;
    assert!(!stranger.get(PATH).await.text.contains("own-rule"));
    let platform = Visitor::with_key(&stage.gateway, &stage.platform()).await;
    platform.get(PATH).await.expect(403);
    platform.post(UPDATE, &fields).await.expect(403);
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    visitor.send(visitor.form(UPDATE, &fields)).await.expect(403);
    visitor.post("/console/policy/odd", &[]).await.expect(404);
}

#[tokio::test]
async fn a_call_is_explained_as_over_the_api() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let rules =
        json!([{"id": "many", "effect": "ask", "match": {"tool": "zoo:writer"}, "when": "args.n > 2"}]);
    let body = json!({"version": 0, "mode": "always_allow", "rules": rules});
    tenant.platform.ask(Method::PUT, "/api/v1/policy", Some(&body)).await.expect(200);
    let agent = tenant.agent().await;
    let own =
        json!({"version": 0, "rules": [{"id": "of-the-key", "effect": "deny", "match": {"tool": "zoo:*"}}]});
    tenant
        .platform
        .ask(Method::PUT, &format!("/api/v1/keys/{}/policy", agent.id), Some(&own))
        .await
        .expect(200);
    let visitor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    let (reader, decider) = (tenant.auditor().await, tenant.approver().await);
    let named = Visitor::with_key(&stage.gateway, &tenant.admin().await).await.get(PATH).await.text;
    for low in [&reader, &decider] {
        assert!(!named.contains(&low.id), "keys of its role call no tools: {named}");
    }
    assert!(named.contains(&format!("<option value=\"{}\">", agent.id)), "an admin chooses by name: {named}");
    let explain = async |fields: &[(&str, &str)]| visitor.post("/console/policy/explain", fields).await;
    let asked = explain(&[("tool", "zoo:writer"), ("args", r#"{"n": 3}"#)]).await;
    asked.expect(200);
    for part in [
        "The policy asks a person first.",
        "Only the policy is looked at here.",
        "by rule many",
        "the person at the agent&#39;s own client",
        "&#34;n&#34;: 3",
    ] {
        assert!(asked.text.contains(part), "{part}: {asked:?}");
    }
    assert_harmless(&asked.text);
    let few = explain(&[("tool", "zoo:writer"), ("args", r#"{"n": 1}"#)]).await;
    assert!(
        few.text.contains("The policy lets it run.") && few.text.contains("&#39;when&#39; is false"),
        "{few:?}"
    );
    let denied = explain(&[("tool", "zoo:writer"), ("key_id", &agent.id), ("endpoint", "direct")]).await;
    assert!(
        denied.text.contains("The policy refuses it.") && denied.text.contains("of-the-key"),
        "{denied:?}"
    );
    assert!(denied.text.contains("value=\"direct\" selected"), "{denied:?}");
    for (fields, status, says) in [
        (vec![], 400, "name a tool"),
        (vec![("tool", "zoo:writ")], 404, "did you mean"),
        (vec![("tool", "zoo:writer"), ("args", "[]")], 400, "Arguments (JSON): must be an object, such as"),
        (
            vec![("tool", "zoo:writer"), ("args", "{n")],
            400,
            "Arguments (JSON): this is not JSON (at character 2).",
        ),
        (vec![("tool", "zoo:writer"), ("key_id", "x")], 400, "must be the id of a key"),
        (vec![("tool", "zoo:writer"), ("key_id", "0199aaaa-0000-7000-8000-000000000001")], 404, "not found"),
        (vec![("tool", "zoo:writer"), ("tool_variant", "odd")], 400, "tool_variant must be one of"),
    ] {
        let refused = explain(&fields).await;
        refused.expect(status);
        let below = refused.text.split("<h2 id=\"explain\">").nth(1).unwrap();
        assert!(below.contains(says), "{says}: {refused:?}");
        let marked = below.contains("<input id=\"e-args\" aria-invalid=\"true\"");
        assert_eq!(marked, says.starts_with("Arguments"), "{refused:?}");
    }
    assert_eq!(upstream.counts().calls, 0, "nothing runs");
}

#[tokio::test]
async fn a_call_is_explained_beside_rules_that_are_not_saved() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let page = visitor.get("/console/policy").await.text;
    let (rules, version) = (r#"[{"id": "mine", "effect": "deny"}]"#, hidden(&page, "version"));
    let typed = [("version", &*version), ("mode", "by_risk"), ("rules", rules), ("tool", "zoo:writer")];
    let explained = visitor.post("/console/policy/explain", &typed).await;
    explained.expect(200);
    assert_harmless(&explained.text);
    assert_eq!(edited(&explained.text), serde_json::from_str::<Value>(rules).unwrap());
    assert!(
        explained.text.contains("what the form has is not saved") && !explained.text.contains("by rule mine")
    );
    assert!(explained.text.contains("<option value=\"by_risk\" selected>"), "{explained:?}");
    let saved = [("version", &*version), ("mode", "by_risk"), ("rules", rules)];
    visitor.post("/console/policy/update", &saved).await.expect(303);
    let page = visitor.get("/console/policy").await.text;
    let same =
        [("version", &*hidden(&page, "version")), ("mode", ""), ("rules", rules), ("tool", "zoo:writer")];
    let explained = visitor.post("/console/policy/explain", &same).await.text;
    assert!(explained.contains("by rule mine") && !explained.contains("not saved"), "{explained}");
    // a version that set no mode brings none back
    visitor.post("/console/policy/update", &same[..3]).await.expect(303);
    let first = visitor.get("/console/policy?version=1").await.text;
    let second = visitor.get("/console/policy?version=2").await.text;
    assert!(first.contains("The mode is then the one of that version."), "{first}");
    assert!(second.contains("That version set no mode, so it stays by_risk"), "{second}");
}

#[tokio::test]
async fn rules_without_effect_in_mode_observe_are_told() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let told = "In mode observe rules ask about and deny nothing, unless they have &#34;enforced&#34;: true;";
    let ask = |more: &str| format!(r#"[{{"id":"w","effect":"ask","match":{{"tool":"zoo:writer"}}{more}}}]"#);
    let deny = ask("").replace("ask", "deny");
    for (version, mode, rules, is_told) in [
        ("0", "observe", ask(""), true),
        ("1", "", ask(r#","enforced":true"#), false),
        ("2", "by_risk", ask(""), false),
        ("3", "observe", ask("").replace("ask", "allow"), false),
        ("4", "", deny, true),
    ] {
        let saved = visitor.post(UPDATE, &[("version", version), ("mode", mode), ("rules", &rules)]).await;
        saved.expect(303);
        let page = visitor.get(saved.header("location")).await.text;
        assert!(page.contains("Saved: version "), "{page}");
        assert_eq!(page.contains(told), is_told, "{mode} {rules}: {page}");
        assert!(page.contains("  enforced: true"), "an example: {page}");
        assert_harmless(&page);
    }
    let explain = async |tool: &str| visitor.post("/console/policy/explain", &[("tool", tool)]).await.text;
    let by_rule = explain("zoo:writer").await;
    let rules_are_idle = "in mode observe rules ask about and deny nothing, unless they have";
    assert!(by_rule.contains(rules_are_idle) && by_rule.contains("it would be refused."), "{by_rule}");
    let by_risk = explain("zoo:wiper").await;
    assert!(!by_risk.contains(rules_are_idle), "{by_risk}");
    assert!(by_risk.contains("In mode by_risk a person would be asked first."), "{by_risk}");
}

#[tokio::test]
async fn keys_with_rules_of_their_own_are_named() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let admin = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let auditor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    assert!(!admin.get(PATH).await.text.contains("of its own. They"));
    let path = |id: &str| format!("/api/v1/keys/{id}/policy");
    let own = json!({"version": 0, "rules": [{"id": "own", "effect": "deny"}]});
    let mut ids = Vec::new();
    for n in 0..12 {
        let name = if n == 0 { HOSTILE[1].to_owned() } else { format!("z{n:02}") };
        let key = tenant.key(&json!({"role": "agent", "name": name, "owner": "ada"})).await;
        tenant.platform.ask(Method::PUT, &path(&key.id), Some(&own)).await.expect(200);
        ids.push(key.id);
        if n == 0 {
            let page = admin.get(PATH).await.text;
            let link = format!("<a href=\"/console/keys/{}\">{}</a>.", ids[0], escaped(HOSTILE[1]));
            assert!(page.contains("1 key has rules of its own: ") && page.contains(&link), "{page}");
            assert_harmless(&page);
        }
    }
    let page = admin.get(PATH).await.text;
    let named = ids.iter().filter(|id| page.contains(&format!("href=\"/console/keys/{id}\""))).count();
    assert!(page.contains("12 keys have rules of their own: ") && named == 10, "{page}");
    // who manages no keys is told the number
    let page = auditor.get(PATH).await.text;
    assert!(page.contains("12 keys have rules of their own. "), "{page}");
    assert!(!page.contains("/console/keys/") && !page.contains("z01"), "{page}");
    // a policy without rules is none
    let none = json!({"version": 1, "rules": []});
    for id in &ids {
        tenant.platform.ask(Method::PUT, &path(id), Some(&none)).await.expect(200);
    }
    assert!(!auditor.get(PATH).await.text.contains("of their own"));
}

#[tokio::test]
async fn hostile_texts_stay_texts_in_rules_and_questions() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    let auditor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    for (version, text) in HOSTILE.iter().enumerate() {
        let rules =
            json!([{"id": "r", "effect": "deny", "match": {"tool": format!("s:{text}")}, "message": text}]);
        let sent = rules.to_string();
        let fields = [("version", version.to_string()), ("mode", String::new()), ("rules", sent)];
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        visitor.post(UPDATE, &fields).await.expect(303);
        assert_eq!(in_force(&admin).await["rules"], rules);
        let page = visitor.get(PATH).await;
        page.expect(200);
        assert_harmless(&page.text);
        // characters that nobody sees are escapes in the form, and the rules stay the same
        assert_eq!(edited(&page.text), rules, "{text:?}");
        let checked = visitor.post("/console/policy/check", &fields).await;
        checked.expect(200);
        assert_harmless(&checked.text);
        assert_eq!(edited(&checked.text), rules, "{text:?}");
        assert_harmless(&auditor.get(PATH).await.text);
        let question = [
            ("tool", *text),
            ("args", *text),
            ("key_id", *text),
            ("tool_variant", *text),
            ("endpoint", *text),
        ];
        assert_harmless(&auditor.post("/console/policy/explain", &question).await.text);
        let tool = auditor.post("/console/policy/explain", &[("tool", *text)]).await;
        tool.expect(404);
        assert_harmless(&tool.text);
        assert!(tool.text.contains(&escaped(text)), "{text:?}: {tool:?}");
    }
}
