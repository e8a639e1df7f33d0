//! Forms that come after the end of their session, in a real browser: what was typed comes back in the next one of the same visitor.

use serde_json::{Value, json};
use sqlx::Executor;

use super::live::{browser, shows};
use super::permissions::{asked, asking, path_of};
use crate::support::{Api, Browser, SESSION, Stage, Tenant, Tool, Upstream, Visitor, upstream};

/// Notices on a page.
const NOTICES: &str =
    "[...document.querySelectorAll('p.notice[role=status]')].map(notice => notice.textContent).join()";
const FILLED: &str = "What you typed before is in the form again; it was not sent again. Go to the form";
const WITHOUT_SECRETS: &str = "What you typed before is in the form again; it was not sent again. \
    Fields that may hold secrets are empty. Go to the form";
/// Test that the link of the notice leads to a form with the mark.
const LEADS_TO_FORM: &str =
    "document.querySelector(document.querySelector('p.notice a').hash).matches('form[data-keep]')";
/// Test that the line of the script is in sight at the end of the page, and over nothing that can be pressed.
const SAID_AT_THE_END: &str = "(() => {
    scrollTo(0, document.documentElement.scrollHeight);
    const line = document.querySelector('p.live').getBoundingClientRect();
    const last = [...document.querySelectorAll('main button, main a')].filter(at => !at.closest('p.live')).at(-1);
    return line.top > 0 && line.bottom <= innerHeight && last.getBoundingClientRect().bottom <= line.top;
})()";
/// Text that the script keeps in the tab.
const STORED: &str = "sessionStorage.getItem('mcpproxy-form') ?? ''";
/// Button that saves the policy.
const SAVE: &str = "form[data-keep] button:not([formaction])";

/// Rules that nobody else has.
const RULES: &str = r#"[{"id": "mine", "effect": "deny", "match": {"tool": "zoo:*"}}]"#;
/// Text of the line at the top of a page.
const SAID: &str = "document.querySelector('p.live [role=status]').textContent";
/// Click on the link of that line.
const LOAD_AGAIN: &str = "document.querySelector('p.live a').click()";

/// A tenant with a server whose tool takes a password, and a request that waits; an admin in a browser.
struct Desk {
    stage: Stage,
    tenant: Tenant,
    _upstream: Upstream,
    admin: Api,
    url: String,
    request: String,
    browser: Browser,
}

impl Desk {
    async fn start() -> Desk {
        let stage = Stage::start().await;
        let text = json!({"type": "string"});
        let schema = json!({"type": "object", "properties": {"city": text, "password": text}});
        let free = json!({"at": {"type": "object"}, "city": text, "env": {"type": "array", "items": text}});
        let free = json!({"type": "object", "properties": free});
        let mut tools = upstream::zoo();
        for (name, schema) in [("login", schema), ("free", free), ("bare", json!({"type": "object"}))] {
            let tool = json!({"name": name, "description": "A tool", "inputSchema": schema});
            tools.push(Tool::raw(name, &tool.to_string()));
        }
        let (tenant, upstream) = asking(&stage, json!([]), tools).await;
        let request = asked(&tenant.agent().await, &json!({"n": 1})).await;
        let admin = tenant.admin().await;
        let visitor = Visitor::with_key(&stage.gateway, &admin).await;
        let browser = browser(&visitor).await;
        Desk { stage, tenant, _upstream: upstream, admin, url: visitor.base.clone(), request, browser }
    }

    async fn open(&mut self, path: &str) {
        self.browser.open(&format!("{}{path}", self.url)).await;
    }

    async fn end_session(&self) {
        self.stage.database.connect().await.execute("delete from web_sessions").await.unwrap();
    }

    /// Fills a field in, as a person does.
    async fn fill(&mut self, field: &str, text: &str) {
        let begin = format!(
            "(() => {{
                const field = document.querySelector('{field}');
                field.closest('details')?.setAttribute('open', '');
                if (!field.options) return false;
                field.value = '{text}';
                return field.dispatchEvent(new Event('input', {{bubbles: true}}));
            }})()"
        );
        if self.browser.evaluate(&begin).await == false {
            self.browser.fill(field, text).await;
        }
    }

    async fn press(&mut self, button: &str) {
        self.browser.follow(&format!("document.querySelector('{button}').click()")).await;
    }

    /// Opens a page, fills fields in, and presses a button after the end of the session. Leads to the login.
    async fn lose(&mut self, path: &str, typed: &[(&str, &str)], button: &str) {
        self.open(path).await;
        for (field, text) in typed {
            self.fill(field, text).await;
        }
        self.end_session().await;
        self.press(button).await;
        let page = self.browser.evaluate("location.pathname").await;
        assert_eq!(page, "/console/login", "{path}");
    }

    /// Begins another session of the same browser, as in another tab.
    async fn log_in_elsewhere(&mut self, key: &Api) {
        let visitor = Visitor::with_key(&self.stage.gateway, key).await;
        self.browser.set_cookie(&visitor.base, SESSION, &visitor.cookie(SESSION).unwrap()).await;
    }

    async fn rules(&self) -> Value {
        self.tenant.platform.get("/api/v1/policy").await.expect(200)["rules"].clone()
    }

    async fn log_in(&mut self, key: &Api) {
        self.browser.fill("#api_key", key.key.as_deref().unwrap()).await;
        self.browser.follow("document.querySelector('form').requestSubmit()").await;
    }

    async fn value(&mut self, field: &str) -> Value {
        self.browser.evaluate(&format!("document.querySelector('{field}').value")).await
    }
}

#[tokio::test]
async fn what_was_typed_is_in_the_form_after_the_login() {
    let mut desk = Desk::start().await;
    let admin = desk.admin.clone();
    let mut mistyped = admin.clone();
    mistyped.key = Some("wrong".to_owned());
    let (url, comment) = (path_of(&desk.request), format!("#c-{}", desk.request));
    let trial = ["#t-1", "#t-2", "#t-args"];
    for (path, kept, secret, button) in [
        ("/console/settings", vec![("#s-allowed_tools", "[\"zoo:*\"")], vec![], "main form button"),
        (
            "/console/servers/zoo/settings",
            vec![("#s-queue", "12x")],
            vec![("#s-headers", "X-Key: s3cret"), ("#s-url", "https://h/?key=s3cret")],
            "main form button",
        ),
        (
            "/console/servers/zoo?tool=writer",
            vec![("#o-title", "My title"), ("#o-readOnlyHint", "true")],
            vec![],
            "form[data-keep] button",
        ),
        (&*url, vec![(&*comment, "not today")], vec![], "button[value=reject_once]"),
        (
            "/console/try?tool=zoo%3Alogin",
            vec![(trial[0], "Berlin"), ("#t-reason", "a test")],
            vec![(trial[1], "s3cret"), (trial[2], "{\"password\": \"s3cret\"}")],
            "button[value=check]",
        ),
        (
            "/console/try?tool=zoo%3Afree",
            vec![("#t-2", "Berlin"), ("#t-variant", "call_tool_destructive")],
            vec![
                ("#t-1", "{\"a\": {\"api_key\": \"s3cret\"}}"),
                ("#t-3", "[\"TOKEN=s3cret\"]"),
                ("#t-args", "{\"x\": \"s3cret\"}"),
            ],
            "button[value=check]",
        ),
        (
            "/console/try?tool=zoo%3Abare",
            vec![("#t-reason", "a test")],
            vec![("#t-args", "{\"password\": \"s3cret\"}")],
            "button[value=check]",
        ),
        (
            "/console/keys",
            vec![("#k-owner", "ada"), ("#k-name", "laptop"), ("#k-role", "auditor"), ("#k-days", "30")],
            vec![],
            "form[data-keep] button",
        ),
    ] {
        desk.lose(path, &[&kept[..], &secret[..]].concat(), button).await;
        let stored = desk.browser.evaluate(STORED).await;
        let stored = stored.as_str().unwrap();
        assert!(!stored.is_empty() && !stored.contains("s3cret") && !stored.contains("csrf"), "{stored}");
        // a key that is mistyped changes nothing about it
        desk.log_in(&mistyped).await;
        desk.log_in(&admin).await;
        let notice = if secret.is_empty() { FILLED } else { WITHOUT_SECRETS };
        assert_eq!(desk.browser.evaluate(NOTICES).await, notice, "{path}");
        assert_eq!(desk.browser.evaluate(LEADS_TO_FORM).await, true, "{path}");
        for (field, text) in &kept {
            assert_eq!(desk.value(field).await, *text, "{path} {field}");
        }
        for (field, _) in &secret {
            assert_eq!(desk.value(field).await, "", "{path} {field}");
        }
        assert_eq!(desk.browser.evaluate(STORED).await, "", "{path}");
        assert_eq!(desk.browser.audit().await, Vec::<String>::new(), "{path}");
        desk.browser.allow_scripts().await;
        desk.browser.reload().await;
        assert_eq!(desk.browser.evaluate(NOTICES).await, "", "{path}: once");
    }
    assert_eq!(desk.stage.database.count("select count(*) from api_keys where owner = 'ada'").await, 0);
    // the form of a key is one of the new session
    desk.lose("/console/keys", &[("#k-owner", "ada")], "form[data-keep] button").await;
    desk.log_in(&admin).await;
    desk.browser.follow("document.querySelector('form[data-keep] button').click()").await;
    assert_eq!(desk.stage.database.count("select count(*) from api_keys where owner = 'ada'").await, 1);
    desk.browser.close().await;
}

#[tokio::test]
async fn a_form_that_is_filled_in_again_overwrites_no_later_change() {
    let mut desk = Desk::start().await;
    desk.lose("/console/policy", &[("#p-rules", RULES)], SAVE).await;
    super::trial::set_policy(&desk.tenant, "always_ask", json!([])).await;
    let admin = desk.admin.clone();
    desk.log_in(&admin).await;
    assert_eq!(desk.value("#p-rules").await, RULES);
    desk.browser.follow(&format!("document.querySelector('{SAVE}').click()")).await;
    assert_eq!(desk.value("#p-rules").await, RULES);
    assert_eq!(desk.rules().await, json!([]), "somebody else was faster");
    desk.browser.follow(&format!("document.querySelector('{SAVE}').click()")).await;
    assert_eq!(desk.rules().await[0]["id"], "mine");
    assert_eq!(desk.browser.evaluate(STORED).await, "", "a form that arrives is not kept");
    desk.browser.close().await;
}

#[tokio::test]
async fn a_page_that_is_logged_out_keeps_its_form_too() {
    let mut desk = Desk::start().await;
    let admin = desk.admin.clone();
    for (field, text, is_sent) in
        [("#p-rules", "- id: mine", false), ("#p-mode", "observe", false), ("#p-rules", "- id: mine", true)]
    {
        desk.open("/console/policy").await;
        desk.fill(field, text).await;
        if is_sent {
            // what the answer to a form has in its fields is what was typed before
            desk.press(SAVE).await;
            assert_eq!(desk.value(field).await, text);
        }
        desk.end_session().await;
        shows(&mut desk.browser, SAID, json!("Logged out: log in again.")).await;
        assert_eq!(desk.browser.evaluate(SAID_AT_THE_END).await, true);
        desk.browser.follow(LOAD_AGAIN).await;
        desk.log_in(&admin).await;
        assert_eq!(
            (desk.value(field).await, desk.browser.evaluate(NOTICES).await),
            (json!(text), json!(WITHOUT_SECRETS)),
            "{field}, sent before: {is_sent}"
        );
    }
    desk.browser.close().await;
}

#[tokio::test]
async fn a_page_of_an_earlier_session_keeps_its_form_for_the_same_person() {
    let mut desk = Desk::start().await;
    let (admin, stranger) = (desk.admin.clone(), desk.tenant.admin().await);
    let agent = desk.tenant.agent().await;
    let comment = format!("#c-{}", desk.request);
    for (n, key, says, text, notice) in [
        (2, &admin, "You have logged in anew.", "not today", FILLED),
        (3, &stranger, "Somebody else is logged in, or another tenant is chosen.", "", ""),
    ] {
        desk.open("/console/permissions").await;
        desk.fill(&comment, "not today").await;
        desk.log_in_elsewhere(key).await;
        asked(&agent, &json!({"n": n})).await;
        shows(&mut desk.browser, SAID, json!(says)).await;
        desk.browser.follow(LOAD_AGAIN).await;
        assert_eq!(desk.value(&comment).await, text, "{says}");
        assert_eq!(desk.browser.evaluate(NOTICES).await, notice, "{says}");
        assert_eq!(desk.browser.evaluate(STORED).await, "", "{says}");
    }
    desk.browser.close().await;
}

#[tokio::test]
async fn a_form_of_an_earlier_session_leads_back_to_its_page() {
    let mut desk = Desk::start().await;
    let (admin, stranger) = (desk.admin.clone(), desk.tenant.admin().await);
    let title = "document.querySelector('h1').textContent";
    for (key, is_same) in [(&stranger, false), (&admin, true)] {
        desk.log_in_elsewhere(&admin).await;
        desk.open("/console/policy").await;
        desk.fill("#p-rules", RULES).await;
        desk.log_in_elsewhere(key).await;
        desk.press(SAVE).await;
        assert_eq!(desk.browser.evaluate(title).await, "Not allowed");
        assert_eq!(desk.browser.audit().await, Vec::<String>::new());
        desk.browser.allow_scripts().await;
        desk.press("main a").await;
        assert_eq!(desk.browser.evaluate("location.pathname").await, "/console/policy");
        assert_eq!(desk.value("#p-rules").await == RULES, is_same);
        let notice = if is_same { WITHOUT_SECRETS } else { "" };
        assert_eq!(desk.browser.evaluate(NOTICES).await, notice);
        assert_eq!(desk.browser.evaluate(STORED).await, "");
        assert_eq!(desk.rules().await, json!([]), "nothing is sent by itself");
    }
    desk.press(SAVE).await;
    assert_eq!(desk.rules().await[0]["id"], "mine");
    desk.browser.close().await;
}

#[tokio::test]
async fn what_was_typed_in_one_tenant_is_not_in_the_forms_of_another() {
    let mut desk = Desk::start().await;
    desk.stage.tenant("other").await;
    desk.log_in_elsewhere(&desk.stage.platform()).await;
    let url = desk.url.clone();
    for (tenant, is_same) in [("other", false), ("acme", true)] {
        desk.browser.set_cookie(&url, "__Host-mcpproxy-tenant", "acme").await;
        desk.open("/console/policy").await;
        desk.fill("#p-rules", RULES).await;
        desk.browser.set_cookie(&url, "__Host-mcpproxy-tenant", tenant).await;
        if is_same {
            desk.log_in_elsewhere(&desk.stage.platform()).await;
        }
        desk.press(SAVE).await;
        desk.press("main a").await;
        let who = desk.browser.evaluate("document.querySelector('.who').textContent").await;
        assert!(who.as_str().unwrap().ends_with(&format!(" in {tenant}")), "{who}");
        assert_eq!(desk.value("#p-rules").await == RULES, is_same, "{tenant}");
        assert_eq!(desk.browser.evaluate(STORED).await, "", "{tenant}");
    }
    desk.browser.close().await;
}

#[tokio::test]
async fn comments_on_other_requests_outlive_a_login() {
    let mut desk = Desk::start().await;
    let (admin, stranger) = (desk.admin.clone(), desk.tenant.admin().await);
    let other = asked(&desk.tenant.agent().await, &json!({"n": 2})).await;
    let (first, second) = (format!("#c-{}", desk.request), format!("#c-{other}"));
    let typed = [(&*second, "rather not"), (&*first, "not today")];
    let button = format!("#card-{} button[value=reject_once]", desk.request);
    let drafts = "sessionStorage.getItem('mcpproxy-comments') ?? ''";
    desk.lose("/console/permissions", &typed, &button).await;
    desk.log_in(&admin).await;
    assert_eq!(
        (desk.value(&first).await, desk.value(&second).await),
        (json!("not today"), json!("rather not"))
    );
    desk.open("/console/permissions").await;
    for (field, text) in typed {
        desk.fill(field, text).await;
    }
    desk.end_session().await;
    shows(&mut desk.browser, SAID, json!("Logged out: log in again.")).await;
    desk.browser.follow(LOAD_AGAIN).await;
    desk.log_in(&admin).await;
    assert_eq!(
        (desk.value(&first).await, desk.value(&second).await),
        (json!("not today"), json!("rather not"))
    );
    // they are for the same person, and go with a logout
    desk.lose("/console/permissions", &typed, &button).await;
    desk.log_in(&stranger).await;
    assert_eq!((desk.value(&first).await, desk.value(&second).await), (json!(""), json!("")));
    assert_eq!(desk.browser.evaluate(drafts).await, "");
    desk.fill(&first, "not today").await;
    desk.press(&format!("#card-{other} button[value=reject_once]")).await;
    assert_eq!(desk.value(&first).await, "not today");
    desk.press("form[action=\"/console/logout\"] button").await;
    assert_eq!(desk.browser.evaluate(drafts).await, "");
    desk.browser.close().await;
}

#[tokio::test]
async fn what_was_typed_is_for_its_visitor_and_page_alone() {
    let mut desk = Desk::start().await;
    let stranger = desk.tenant.admin().await;
    let admin = desk.admin.clone();
    let typed = [("#p-rules", "- id: mine")];
    desk.lose("/console/policy", &typed, SAVE).await;
    desk.log_in(&stranger).await;
    assert_ne!(desk.value("#p-rules").await, "- id: mine");
    assert_eq!(
        (desk.browser.evaluate(NOTICES).await, desk.browser.evaluate(STORED).await),
        (json!(""), json!(""))
    );
    // the next page takes it, or nobody
    desk.open("/console").await;
    desk.browser.follow("document.querySelector('form[action=\"/console/logout\"] button').click()").await;
    desk.log_in(&admin).await;
    desk.lose("/console/policy", &typed, SAVE).await;
    desk.open("/console/login").await;
    desk.log_in(&admin).await;
    desk.open("/console/policy").await;
    assert_ne!(desk.value("#p-rules").await, "- id: mine");
    // what a form left behind goes with a logout, and with a login that no form led to
    for act in ["form[action=\"/console/logout\"] button", "nav a"] {
        desk.open("/console/policy").await;
        desk.browser.evaluate("sessionStorage.setItem('mcpproxy-form', '{\"values\": {}}')").await;
        if act == "nav a" {
            desk.end_session().await;
        }
        desk.browser.follow(&format!("document.querySelector('{act}').click()")).await;
        assert_eq!(desk.browser.evaluate("location.pathname").await, "/console/login");
        assert_eq!(desk.browser.evaluate(STORED).await, "", "{act}");
        desk.log_in(&admin).await;
    }
    // a form that is longer than any that the gateway takes is not kept; as JSON a control character is six
    for (text, length, is_kept) in [("x", 250_000, true), ("\\u0001", 180_000, false)] {
        desk.open("/console/policy").await;
        let long = format!("'{text}'.repeat({length})");
        desk.browser.evaluate(&format!("document.querySelector('#p-rules').value = {long}")).await;
        desk.end_session().await;
        desk.press(SAVE).await;
        assert_eq!(desk.browser.evaluate(STORED).await != "", is_kept, "{length}");
        desk.log_in(&admin).await;
        let is_there = format!("document.querySelector('#p-rules').value === {long}");
        assert_eq!(desk.browser.evaluate(&is_there).await, is_kept, "{length}");
    }
    desk.browser.close().await;
}
