//! Tools of different kinds, and what people are told about each.

use serde_json::{Value, json};

use super::asking_of;
use crate::support::{Api, Mcp, Tool};

/// Arguments of each tool, whether mode `by_risk` asks, and the reason in English and German.
const KINDS: [(&str, &str, &str, &str, &str); 6] = [
    ("read", "fs_read_file", r#"{"path":"/etc/app/config.toml"}"#, "", ""),
    (
        "write",
        "fs_write_file",
        r#"{"path":"/path/to/file","content":"x"}"#,
        "Write to file at /path/to/file",
        "In die Datei /path/to/file schreiben",
    ),
    (
        "write",
        "terminal_create",
        r#"{"command":"npm install"}"#,
        "Execute command: npm install",
        "Befehl ausführen: npm install",
    ),
    (
        "write",
        "http_get",
        r#"{"url":"https://example.com/a"}"#,
        "Send a GET request to https://example.com/a",
        "Eine GET-Anfrage an https://example.com/a senden",
    ),
    (
        "destructive",
        "delete_repo",
        r#"{"owner":"acme","repo":"demo"}"#,
        "Delete the repository acme/demo. This cannot be undone.",
        "Das Repository acme/demo löschen. Das lässt sich nicht rückgängig machen.",
    ),
    ("write", "star_repo", r#"{"repo":"acme/demo"}"#, "", ""),
];

/// Returns the reasons of a tool's requests, in the language of the reader.
async fn reasons(api: &Api, tool: &str, language: &str) -> Vec<Value> {
    let path = format!("/api/v1/consent?tool=zoo:{tool}");
    let request = api.request(reqwest::Method::GET, &path).header("Accept-Language", language);
    let page = api.send(request).await.expect(200);
    page["items"].as_array().unwrap().iter().map(|item| item["reason"].clone()).collect()
}

#[tokio::test]
async fn by_risk_asks_about_some_tools_and_says_what_they_would_do() {
    let tools = KINDS.iter().map(|(_, name, ..)| Tool::new(name)).collect();
    let (_stage, tenant, upstream) = asking_of(&[], json!([]), tools).await;
    tenant.platform.patch("/api/v1/settings", &json!({"policy_mode": "by_risk"})).await.expect(200);
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    for (variant, tool, args, english, german) in KINDS {
        let args: Value = serde_json::from_str(args).unwrap();
        let outcome = Mcp::bare(&agent).run(variant, &format!("zoo:{tool}"), &args).await;
        let expected = if english.is_empty() { "ok" } else { "consent_pending" };
        assert_eq!(outcome.code(), expected, "{tool}");
        for (language, reason) in [("en", english), ("de-DE, en;q=0.5", german), ("tlh", english)] {
            let told = reasons(&approver, tool, language).await;
            assert_eq!(told, Vec::from_iter((!reason.is_empty()).then_some(reason)), "{tool} {language}");
        }
    }
    assert_eq!(upstream.counts().calls, KINDS.iter().filter(|kind| kind.3.is_empty()).count());
}
