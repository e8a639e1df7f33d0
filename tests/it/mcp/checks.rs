//! Checks 1 to 6 and 9: what a call says about itself, against what the server says about the tool.

use serde_json::{Value, json};

use crate::support::{Api, Mcp, Stage, Tenant, Upstream, upstream};

const NOT_READ: &str = "is not marked read-only by server, use call_tool_write";
const DESTRUCTIVE: &str = "is marked destructive by server, use call_tool_destructive";
const NO_ANNOTATIONS: &str = "has no annotations and this key does not trust it, use call_tool_destructive";
const NOT_SAID: &str =
    "does not say it is non-destructive and this key does not trust it, use call_tool_destructive";
const WARNED: &str = "is marked read-only by server, call_tool_read is enough";

async fn zoo() -> (Stage, Tenant, Upstream) {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    (stage, tenant, upstream)
}

/// What came of a call: `""` allowed, a refusal's or a warning's text otherwise.
async fn verdict(client: &Mcp, variant: &str, tool: &str) -> String {
    let outcome = client.run(variant, &format!("zoo:{tool}"), &json!({})).await;
    let result = outcome.result();
    let text = match result["isError"] == true {
        true => outcome.refused("server_mismatch")["message"].clone(),
        false => result["_meta"]["mcpproxy/warning"].clone(),
    };
    let text = text.as_str().unwrap_or_default().to_owned();
    text.strip_prefix(&format!("Tool 'zoo:{tool}' ")).map_or(text.clone(), str::to_owned)
}

type Row = (&'static str, [&'static str; 3]);

/// By tool: what `read`, `write` and `destructive` meet.
const TRUST: [Row; 6] = [
    ("reader", ["", WARNED, ""]),
    ("writer", [NOT_READ, "", ""]),
    ("wiper", [DESTRUCTIVE, DESTRUCTIVE, ""]),
    ("half", [NOT_READ, "", ""]),
    ("mild", ["", "", ""]),
    ("plain", ["", "", ""]),
];
const DISTRUST: [Row; 6] = [
    ("reader", ["", WARNED, ""]),
    ("writer", [NOT_READ, "", ""]),
    ("wiper", [DESTRUCTIVE, DESTRUCTIVE, ""]),
    ("half", [NOT_SAID, NOT_SAID, ""]),
    ("mild", [NOT_READ, "", ""]),
    ("plain", [NO_ANNOTATIONS, NO_ANNOTATIONS, ""]),
];

async fn matrix(upstream: &Upstream, api: &Api, rows: &[Row]) {
    for client in [Mcp::bare(api), Mcp::modern(api)] {
        for (tool, expected) in rows {
            for (variant, expected) in ["read", "write", "destructive"].into_iter().zip(expected) {
                let before = upstream.counts().calls;
                let found = verdict(&client, variant, tool).await;
                assert_eq!(&found, expected, "{variant} {tool}");
                let reached = upstream.counts().calls - before;
                let allowed = expected.is_empty() || *expected == WARNED;
                assert_eq!(
                    reached,
                    usize::from(allowed),
                    "{variant} {tool}: calls that reached the upstream"
                );
            }
        }
    }
}

#[tokio::test]
async fn the_matrix_of_variant_and_tier() {
    let (_stage, tenant, upstream) = zoo().await;
    matrix(&upstream, &tenant.agent().await, &TRUST).await;
    let distrusts = tenant.agent_with(json!({"unannotated_tools": "distrust"})).await;
    matrix(&upstream, &distrusts, &DISTRUST).await;
}

#[tokio::test]
async fn a_lenient_key_is_warned_instead() {
    let (_stage, tenant, upstream) = zoo().await;
    let lenient = tenant.agent_with(json!({"strict_server_validation": false})).await;
    let client = Mcp::session(&lenient).await;
    for (tool, expected) in TRUST {
        for (variant, expected) in ["read", "write", "destructive"].into_iter().zip(expected) {
            assert_eq!(verdict(&client, variant, tool).await, expected, "{variant} {tool}");
        }
    }
    assert_eq!(upstream.counts().calls, 18);
    for record in tenant.records("type=tool_call&tool=wiper", 3).await {
        let warned = record["tool_variant"] != "call_tool_destructive";
        let text = if warned { json!(format!("Tool 'zoo:wiper' {DESTRUCTIVE}")) } else { Value::Null };
        assert_eq!(record["warning"], text, "{record}");
    }
}

#[tokio::test]
async fn what_a_mismatch_tells_the_caller() {
    let (_stage, tenant, _upstream) = zoo().await;
    let client = Mcp::bare(&tenant.agent().await);
    let refused = client.run("read", "zoo:wiper", &json!({})).await.refused("server_mismatch");
    let expected = json!({
        "code": "server_mismatch",
        "message": format!("Tool 'zoo:wiper' {DESTRUCTIVE}"),
        "tool": "zoo:wiper", "variant": "call_tool_read", "declared": null,
        "expected": "destructive", "recommended": "call_tool_destructive",
    });
    assert_eq!(refused, expected);
    let arguments = json!({"name": "zoo:writer", "intent": {"operation_type": "destructive"}});
    let refused = client.call("call_tool_write", &arguments).await.refused("intent_mismatch");
    let expected = json!({
        "code": "intent_mismatch",
        "message": "Intent mismatch: tool is call_tool_write but intent declares destructive",
        "tool": "zoo:writer", "variant": "call_tool_write", "declared": "destructive",
        "expected": "write", "recommended": "call_tool_destructive",
    });
    assert_eq!(refused, expected);
}

/// `(variant, arguments, code, message)`; no message: any.
type Case = (&'static str, Value, &'static str, Option<&'static str>);

async fn table(client: &Mcp, cases: Vec<Case>) {
    for (variant, arguments, code, message) in cases {
        let outcome = client.call(&format!("call_tool_{variant}"), &arguments).await;
        assert_eq!(outcome.code(), code, "{variant} {arguments}: {outcome:?}");
        if let Some(message) = message {
            assert_eq!(outcome.refused(code)["message"], message, "{variant} {arguments}");
        }
    }
}

#[tokio::test]
async fn name_and_arguments() {
    let (_stage, tenant, upstream) = zoo().await;
    let client = Mcp::bare(&tenant.agent().await);
    let read = "zoo:reader";
    table(
        &client,
        vec![
            ("read", json!({}), "invalid_name", None),
            ("read", json!({"name": 7}), "invalid_name", None),
            ("read", json!({"name": "reader"}), "invalid_name", None),
            ("read", json!({"name": ":reader"}), "invalid_name", None),
            ("read", json!({"name": "zoo:"}), "invalid_name", None),
            ("read", json!({"name": "ZOO:reader"}), "invalid_name", None),
            ("read", json!({"name": read, "args": {}, "args_json": "{}"}), "invalid_arguments", None),
            ("read", json!({"name": read, "args": []}), "invalid_arguments", None),
            ("read", json!({"name": read, "args": "{}"}), "invalid_arguments", None),
            ("read", json!({"name": read, "args_json": {}}), "invalid_arguments", None),
            ("read", json!({"name": read, "args_json": "[]"}), "invalid_arguments", None),
            ("read", json!({"name": read, "args_json": "{"}), "invalid_arguments", None),
            ("read", json!({"name": read}), "ok", None),
            ("read", json!({"name": read, "args": null, "args_json": null}), "ok", None),
            ("read", json!({"name": read, "args": {"a": 1}}), "ok", None),
            ("read", json!({"name": read, "args_json": "{\"a\":1}"}), "ok", None),
        ],
    )
    .await;
    let sent: Vec<String> = upstream.calls().into_iter().map(|call| call.arguments).collect();
    assert_eq!(sent, ["{}", "{}", r#"{"a":1}"#, r#"{"a":1}"#]);
}

#[tokio::test]
async fn the_declared_intent() {
    let (_stage, tenant, upstream) = zoo().await;
    let long = "é".repeat(1001);
    let fits = "é".repeat(1000);
    let read = "zoo:reader";
    let unknown = Some("Invalid intent.operation_type 'x': must be read, write, or destructive");
    let mismatch = Some("Intent mismatch: tool is call_tool_read but intent declares write");
    let sensitivity =
        Some("Invalid intent.data_sensitivity 'secret': must be public, internal, private, or unknown");
    let too_long = Some("intent.reason exceeds maximum length of 1000 characters");
    let both = |required: bool| {
        let absent = if required { "missing_intent" } else { "ok" };
        let absent_text = required.then_some("intent.operation_type is required");
        vec![
            ("read", json!({"name": read}), absent, absent_text),
            ("read", json!({"name": read, "intent": {}}), absent, absent_text),
            ("read", json!({"name": read, "intent": ""}), absent, absent_text),
            ("read", json!({"name": read, "intent_operation_type": ""}), absent, absent_text),
            ("read", json!({"name": read, "intent": 7}), "invalid_intent", None),
            ("read", json!({"name": read, "intent": ["read"]}), "invalid_intent", None),
            ("read", json!({"name": read, "intent": {"operation_type": 7}}), "invalid_intent", None),
            ("read", json!({"name": read, "intent": {"operation_type": "x"}}), "invalid_intent", unknown),
            ("read", json!({"name": read, "intent_operation_type": "x"}), "invalid_intent", unknown),
            (
                "read",
                json!({"name": read, "intent": {"operation_type": "read"}, "intent_operation_type": "write"}),
                "invalid_intent",
                None,
            ),
            (
                "read",
                json!({"name": read, "intent": {"operation_type": "read"}, "intent_operation_type": "read"}),
                "ok",
                None,
            ),
            ("read", json!({"name": read, "intent": {"operation_type": "read"}}), "ok", None),
            ("read", json!({"name": read, "intent_operation_type": "read"}), "ok", None),
            (
                "read",
                json!({"name": read, "intent": {"operation_type": "write"}}),
                "intent_mismatch",
                mismatch,
            ),
            ("read", json!({"name": read, "intent_operation_type": "write"}), "intent_mismatch", mismatch),
            (
                "read",
                json!({"name": read, "intent": {"operation_type": "read", "data_sensitivity": "secret"}}),
                "invalid_sensitivity",
                sensitivity,
            ),
            (
                "read",
                json!({"name": read, "intent_operation_type": "read", "intent_data_sensitivity": "secret"}),
                "invalid_sensitivity",
                sensitivity,
            ),
            (
                "read",
                json!({"name": read, "intent_operation_type": "read", "intent_data_sensitivity": "private"}),
                "ok",
                None,
            ),
            (
                "read",
                json!({"name": read, "intent": {"operation_type": "read", "reason": long}}),
                "reason_too_long",
                too_long,
            ),
            (
                "read",
                json!({"name": read, "intent_operation_type": "read", "intent_reason": long}),
                "reason_too_long",
                too_long,
            ),
            (
                "read",
                json!({"name": read, "intent_operation_type": "read", "intent_reason": fits}),
                "ok",
                None,
            ),
            // the order: 1, 2, 3, 4, 5, 6, 7, 9
            ("read", json!({"name": "bad", "intent": 7}), "invalid_name", None),
            ("read", json!({"name": read, "args": [], "intent": 7}), "invalid_arguments", None),
            ("read", json!({"name": "zoo:none", "intent": 7}), "invalid_intent", None),
            (
                "read",
                json!({"name": "zoo:none", "intent_operation_type": "write", "intent_data_sensitivity": "secret"}),
                "intent_mismatch",
                mismatch,
            ),
            (
                "read",
                json!({"name": "zoo:none", "intent_operation_type": "read", "intent_data_sensitivity": "secret", "intent_reason": long}),
                "invalid_sensitivity",
                sensitivity,
            ),
            (
                "read",
                json!({"name": "zoo:none", "intent_operation_type": "read", "intent_reason": long}),
                "reason_too_long",
                too_long,
            ),
            ("read", json!({"name": "zoo:none", "intent_operation_type": "read"}), "not_found", None),
            ("read", json!({"name": "zoo:wiper", "intent_operation_type": "read"}), "server_mismatch", None),
        ]
    };
    let required = tenant.agent_with(json!({"intent_declaration": "required"})).await;
    table(&Mcp::bare(&tenant.agent().await), both(false)).await;
    table(&Mcp::modern(&required), both(true)).await;
    assert_eq!(upstream.counts().calls, 2 * 5 + 4, "only what was allowed reached the upstream");
}
