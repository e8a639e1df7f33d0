//! A fuzzing client, schemathesis, with nothing but the OpenAPI document to go by: valid requests must be taken, invalid
//! ones refused, every answer be what is said of it, and nothing fail inside.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{Api, Document, Stage, Tool, Upstream};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// Requests per operation and kind, beyond those for each rule of its schemas.
const EXAMPLES_MAX: &str = "5";

/// Where `setup.sh` puts it.
fn program() -> PathBuf {
    let tools = std::env::var_os("MCPPROXY_TEST_TOOLS")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("demo"), PathBuf::from);
    let program = tools.join("fuzz/bin/schemathesis");
    assert!(program.exists(), "{} is missing; run tests/it/setup.sh first", program.display());
    program
}

/// What is served, with what no schema can say: addresses are the upstream's, so that nothing of what is made up is ever
/// connected to; the program is the deployment's; times are in order; a policy has one rule, whose condition is in CEL and
/// whose effect fits its members; cursors, which only lists give, are left out. Only operations that this role may use are
/// in it.
fn document(served: &Value, role: &str, upstream: &str) -> Value {
    let mut document = served.clone();
    let parts = &mut document["components"];
    parts["schemas"]["UpstreamUrl"] = json!({"enum": [upstream, format!("{upstream}?other")]});
    parts["schemas"]["StdioServerRequest"]["properties"]["command"] = json!({"const": "echo"});
    parts["schemas"]["PageUrls"] = json!({"enum": [[upstream], [format!("{upstream}?other")]]});
    parts["schemas"]["ServerPatch"]["properties"].as_object_mut().unwrap().remove("command");
    parts["schemas"]["KeyRequest"]["properties"]["expires_at"] =
        json!({"enum": [null, "2999-01-01T00:00:00Z"]});
    parts["schemas"]["PolicyUpdate"]["properties"]["rules"]["maxItems"] = json!(1);
    let rule = &mut parts["schemas"]["PolicyRule"]["properties"];
    (rule["effect"], rule["when"]) = (json!({"const": "ask"}), json!({"enum": ["args.n == 1"]}));
    let hours = json!({"const": {"days": ["mon"], "from": "08:00", "to": "18:00", "utc_offset": "+01:00"}});
    parts["schemas"]["PolicySelectors"]["properties"]["time"] = hours;
    parts["parameters"]["StartTime"]["schema"] = json!({"enum": ["2026-01-01T00:00:00Z"]});
    parts["parameters"]["EndTime"]["schema"] = json!({"enum": ["2999-01-01T00:00:00Z"]});
    for item in document["paths"].as_object_mut().unwrap().values_mut() {
        let operations = item.as_object_mut().unwrap();
        operations.retain(|_, said| {
            said.get("x-roles").and_then(Value::as_array).is_none_or(|roles| roles.contains(&role.into()))
        });
        for parameters in
            operations.values_mut().filter_map(|said| said.get_mut("parameters")?.as_array_mut())
        {
            parameters.retain(|parameter| {
                parameter["$ref"].as_str().is_none_or(|place| !place.ends_with("Cursor"))
            });
        }
    }
    document
}

/// Lets it ask as this caller; panics with what it found.
async fn fuzz(api: &Api, role: &str, more: &[&str], upstream: &str, folder: &Path) {
    let served = api.get("/api/v1/openapi.json").await.expect(200);
    let file = folder.join(format!("{role}.json"));
    std::fs::write(&file, document(&served, role, upstream).to_string()).unwrap();
    let output = Command::new(program())
        .args(["--config-file", &format!("{ROOT}/tests/fuzz/schemathesis.toml"), "run"])
        .arg(&file)
        .args(["--url", &format!("{}/api/v1", api.base_url()), "--max-examples", EXAMPLES_MAX])
        .args(["--generation-deterministic", "--continue-on-failure", "--no-color", "--warnings", "off"])
        .args(["--header", &format!("X-API-Key: {}", api.key.as_deref().unwrap())])
        .args(more)
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", folder)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "as {role}:\n{report}\n{complaint}");
    let operations = Document::get().operations();
    let open = operations.iter().filter(|operation| {
        let name = operation.said["operationId"].as_str().unwrap();
        operation.said["x-roles"].as_array().unwrap().contains(&role.into())
            && !["streamActivity", "streamEvents", "streamConsent", "deleteTenant", "suspendTenant"]
                .contains(&name)
    });
    let tested = open.count().to_string();
    let words: Vec<&str> = report.split_whitespace().collect();
    let is_said = words.windows(2).any(|pair| pair == ["Tested:", &*tested]);
    assert!(is_said, "as {role}, {tested} operations are not what was tested:\n{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_with_the_document_finds_nothing() {
    let stage =
        Stage::with(&[("MCPPROXY__STDIO__COMMANDS", r#"{"echo":{"argv":["cat"],"tenants":["acme"]}}"#)])
            .await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let folder = tempfile::tempdir().unwrap();
    fuzz(&agent, "agent", &[], &upstream.url, folder.path()).await;
    fuzz(&tenant.platform, "platform", &["--header", "X-Tenant: acme"], &upstream.url, folder.path()).await;
}
