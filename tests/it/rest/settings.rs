//! Settings, with their origins.

use serde_json::json;

use crate::support::Stage;

#[tokio::test]
async fn they_resolve_from_key_to_tenant_to_deployment() {
    let stage = Stage::with(&[("MCPPROXY__DEFAULTS__UNANNOTATED_TOOLS", "distrust")]).await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    let agent = tenant.agent().await;
    let own = format!("/api/v1/keys/{}/settings", agent.id);
    let start = admin.get("/api/v1/settings").await.expect(200);
    insta::assert_json_snapshot!(start, @r#"
    {
      "activity_retention_days": {
        "origin": "deployment",
        "value": 90
      },
      "allowed_tools": {
        "origin": "deployment",
        "value": [
          "*"
        ]
      },
      "direct_endpoint": {
        "origin": "deployment",
        "value": false
      },
      "host_prompts": {
        "origin": "deployment",
        "value": []
      },
      "in_band_answers": {
        "origin": "deployment",
        "value": true
      },
      "intent_declaration": {
        "origin": "deployment",
        "value": "inferred"
      },
      "locale": {
        "origin": "deployment",
        "value": "en"
      },
      "max_operation": {
        "origin": "deployment",
        "value": "destructive"
      },
      "policy_mode": {
        "origin": "deployment",
        "value": "observe"
      },
      "rate_limit": {
        "origin": "deployment",
        "value": null
      },
      "response_limit": {
        "origin": "deployment",
        "value": 20000
      },
      "strict_server_validation": {
        "origin": "deployment",
        "value": true
      },
      "tool_names": {
        "origin": "deployment",
        "value": "colon"
      },
      "unannotated_tools": {
        "origin": "deployment",
        "value": "distrust"
      },
      "version": 0
    }
    "#);
    let deployment = start["unannotated_tools"]["origin"].clone();
    let patched = admin
        .patch("/api/v1/settings", &json!({"unannotated_tools": "trust", "max_operation": "write"}))
        .await
        .expect(200);
    assert_eq!(patched["unannotated_tools"]["value"], "trust");
    let from_tenant = patched["unannotated_tools"]["origin"].clone();
    assert_ne!(from_tenant, deployment);
    let seen = admin.get(&own).await.expect(200);
    assert_eq!(seen["unannotated_tools"], json!({"value": "trust", "origin": from_tenant}));
    let patched = admin
        .patch(&own, &json!({"unannotated_tools": "distrust", "max_operation": "destructive"}))
        .await
        .expect(200);
    assert_eq!(patched["unannotated_tools"]["value"], "distrust");
    let from_key = patched["unannotated_tools"]["origin"].clone();
    assert!(from_key != from_tenant && from_key != deployment, "{patched}");
    // what limits is the tightest of all, whoever speaks last
    assert_eq!(patched["max_operation"]["value"], "write", "{patched}");
    let reset = admin.patch(&own, &json!({"unannotated_tools": null})).await.expect(200);
    assert_eq!(reset["unannotated_tools"], json!({"value": "trust", "origin": from_tenant}));
}

#[tokio::test]
async fn a_stale_version_conflicts() {
    let stage = Stage::start().await;
    let admin = stage.tenant("acme").await.admin().await;
    let version = admin.get("/api/v1/settings").await.expect(200)["version"].clone();
    let body = json!({"max_operation": "write", "version": version});
    let changed = admin.patch("/api/v1/settings", &body).await.expect(200);
    assert_ne!(changed["version"], version);
    let late = json!({"max_operation": "read", "version": version});
    admin.patch("/api/v1/settings", &late).await.refused(409, "conflict");
    assert_eq!(admin.get("/api/v1/settings").await.expect(200)["max_operation"]["value"], "write");
}

#[tokio::test]
async fn values_are_checked() {
    let stage = Stage::start().await;
    let admin = stage.tenant("acme").await.admin().await;
    let before = admin.get("/api/v1/settings").await.expect(200);
    let cases = [
        ("nope", json!(1)),
        ("strict_server_validation", json!("no")),
        ("intent_declaration", json!("sometimes")),
        ("unannotated_tools", json!(true)),
        ("max_operation", json!("all")),
        ("allowed_tools", json!("*")),
        ("allowed_tools", json!([7])),
        ("allowed_tools", json!(vec!["x"; 201])),
        ("direct_endpoint", json!(1)),
        ("tool_names", json!("kebab")),
        ("rate_limit", json!(0)),
        ("response_limit", json!(-1)),
        ("version", json!("one")),
    ];
    for (name, value) in cases {
        let answer = admin.patch("/api/v1/settings", &json!({ name: value })).await;
        answer.refused(400, "invalid_request");
        assert_eq!(answer.json()["error"]["field"], name, "{value}: {answer:?}");
    }
    assert_eq!(admin.get("/api/v1/settings").await.expect(200), before);
}
