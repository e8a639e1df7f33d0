//! Both spellings of a name.

use serde_json::json;

use super::{modern, names, scene};
use crate::support::{DIRECT, Mcp, Tool, Upstream};

#[tokio::test]
async fn a_key_or_a_url_chooses_and_calls_take_either() {
    let (_stage, tenant) = scene().await;
    let long = "x".repeat(60);
    let tools =
        vec![Tool::reads("read.file"), Tool::reads("read_file"), Tool::reads("größe"), Tool::reads(&long)];
    let upstream = Upstream::handshake(tools).await;
    tenant.add("my-fs", &upstream).await;
    let (colon, safe) = (tenant.agent().await, tenant.agent_with(json!({"tool_names": "safe"})).await);
    let spelled = names(&Mcp::direct(&safe)).await;
    assert_eq!(spelled.len(), 5, "{spelled:?}");
    for name in &spelled {
        let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        assert!(is_plain && name.len() <= 48, "{name}");
    }
    assert_eq!(spelled.iter().collect::<std::collections::BTreeSet<_>>().len(), 5, "{spelled:?}");
    let canonical = names(&modern(&colon)).await;
    assert!(canonical.contains(&"my-fs:read.file".to_owned()), "{canonical:?}");
    // the same order in both, so the same tools
    let asked = |api, query: &str| Mcp::modern(api).at(&format!("{DIRECT}?names={query}"));
    assert_eq!(names(&asked(&colon, "safe")).await, spelled);
    assert_eq!(names(&asked(&safe, "colon")).await, canonical);
    let shown = tenant.platform.items("/api/v1/servers/my-fs/tools").await;
    for (name, other) in canonical.iter().zip(&spelled).skip(1) {
        let item =
            shown.iter().find(|item| format!("my-fs:{}", item["name"].as_str().unwrap()) == *name).unwrap();
        assert_eq!(item["safe_name"], **other, "{name}");
        for (api, spelling) in [(&colon, name), (&colon, other), (&safe, name), (&safe, other)] {
            // a name that no header can carry goes out as the old era does
            let before = upstream.counts().calls;
            Mcp::direct(api).call(spelling, &json!({"ticket": "t"})).await.ok();
            assert_eq!(upstream.counts().calls, before + 1, "{spelling}");
            assert_eq!(upstream.calls().pop().unwrap().tool, item["name"], "{spelling}");
        }
    }
    for record in tenant.records("source=direct", 16).await {
        assert_eq!(
            (&record["server"], &record["type"]),
            (&json!("my-fs"), &json!("direct_call")),
            "{record}"
        );
        assert!(!record["tool"].as_str().unwrap().starts_with("my_fs"), "{record}");
    }
    let strange = Mcp::direct(&safe).at(&format!("{DIRECT}?name=safe"));
    assert_eq!(strange.call("my-fs:read.file", &json!({})).await.answer.status, 400);
    tenant.records("source=direct&status=blocked", 1).await;
    for query in ["names=", "names=SAFE", "names=safe&x=1", "key=1"] {
        let answer = Mcp::direct(&safe).at(&format!("{DIRECT}?{query}")).request("tools/list", "{}").await;
        assert_eq!(
            (answer.status, &answer.json()["error"]["code"]),
            (400, &json!(-32600)),
            "{query}: {answer:?}"
        );
    }
}
