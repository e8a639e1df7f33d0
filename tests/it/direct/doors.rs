//! To whom the endpoint is open.

use reqwest::Method;
use serde_json::json;

use super::{ON, modern, names, open, scene};
use crate::support::{Api, DIRECT, Mcp, People, Stage};

/// What is answered to a request, but for its id.
async fn answer(api: &Api, method: Method, path: &str) -> (u16, String, String) {
    let request = api.request(method, path).header("X-Request-Id", "same").header("Accept", "*/*");
    let answer = api.send(request.header("Content-Type", "application/json").body("{}")).await;
    (answer.status, answer.header("content-type").to_owned(), answer.text)
}

/// To this key the endpoint is what no path of ours is.
async fn is_nowhere(api: &Api, who: &str) {
    for method in [Method::POST, Method::GET, Method::DELETE, Method::PUT] {
        let unknown = answer(api, method.clone(), "/mcp/no-such-path").await;
        assert_eq!(unknown.0, 404);
        for path in [DIRECT, "/mcp/direct?names=safe", "/mcp/direct?what=ever"] {
            assert_eq!(answer(api, method.clone(), path).await, unknown, "{who}: {method} {path}");
        }
    }
}

#[tokio::test]
async fn it_is_off_until_deployment_and_key_have_it_on() {
    let stage = Stage::start().await;
    let tenant = open(&stage, "acme").await;
    let willing = tenant.agent_with(json!({"direct_endpoint": true})).await;
    is_nowhere(&willing, "the deployment has it off").await;
    let status = willing.get("/api/v1/status").await.expect(200);
    assert_eq!((&status["direct_enabled"], &status["direct_endpoint"]), (&json!(false), &json!(false)));
    assert!(!stage.gateway.log().contains("/mcp/direct is open"));

    let stage = Stage::with(&[ON]).await;
    let tenant = stage.tenant("acme").await;
    let plain = tenant.agent().await;
    is_nowhere(&plain, "nobody switched it on").await;
    let status = plain.get("/api/v1/status").await.expect(200);
    assert_eq!((&status["direct_enabled"], &status["direct_endpoint"]), (&json!(true), &json!(false)));
    let own = format!("/api/v1/keys/{}/settings", plain.id);
    tenant.platform.patch(&own, &json!({"direct_endpoint": true})).await.expect(200);
    assert_eq!(names(&Mcp::direct(&plain)).await, ["read_cache"]);
    assert_eq!(names(&modern(&plain)).await, ["read_cache"]);
    assert_eq!(plain.get("/api/v1/status").await.expect(200)["direct_endpoint"], true);
    tenant.platform.patch(&own, &json!({"direct_endpoint": false})).await.expect(200);
    is_nowhere(&plain, "the key has it off again").await;
    assert!(stage.gateway.log().contains("/mcp/direct is open"));
    let anonymous = answer(&stage.gateway.anonymous(), Method::POST, DIRECT).await;
    assert_eq!(anonymous.0, 401, "the key comes first");
}

#[tokio::test]
async fn who_must_declare_has_it_by_its_own_word_only() {
    let (_stage, tenant) = scene().await;
    let required = tenant.agent_with(json!({"intent_declaration": "required"})).await;
    is_nowhere(&required, "the tenant's word").await;
    let own = format!("/api/v1/keys/{}/settings", required.id);
    let settings = tenant.platform.get(&own).await.expect(200);
    assert_eq!(settings["direct_endpoint"], json!({"value": false, "origin": "tenant"}), "{settings}");
    tenant.platform.patch(&own, &json!({"direct_endpoint": true})).await.expect(200);
    assert_eq!(names(&Mcp::direct(&required)).await, ["read_cache"]);
}

#[tokio::test]
async fn roles_without_tools_may_not_use_it() {
    let (stage, tenant) = scene().await;
    let people = People::of(&stage, &tenant, "acme").await;
    for (role, may) in
        [("agent", true), ("operator", true), ("admin", true), ("auditor", false), ("approver", false)]
    {
        let key = tenant.key(&json!({ "role": role })).await;
        for api in [key, people.person(role, json!({})).await] {
            let listed = Mcp::direct(&api).request("tools/list", "{}").await;
            assert_eq!(listed.status, if may { 200 } else { 403 }, "{role}: {listed:?}");
        }
    }
}

#[tokio::test]
async fn a_session_belongs_to_the_endpoint_it_was_opened_on() {
    let (_stage, tenant) = scene().await;
    let agent = tenant.agent().await;
    let search = Mcp::session(&agent).await;
    let direct = Mcp::direct(&agent).shake_hands("2025-11-25").await;
    assert_eq!(names(&direct).await, ["read_cache"]);
    let search_id = search.session_id().to_owned();
    for (stranger, path) in [(search, DIRECT), (Mcp::in_session(&agent, direct.session_id()), "/mcp")] {
        let answer = stranger.at(path).request("tools/list", "{}").await;
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
    }
    Mcp::in_session(&agent, &search_id).request("tools/list", "{}").await.expect(200);
}

#[tokio::test]
async fn what_the_endpoint_says_of_itself() {
    let (_stage, tenant) = scene().await;
    let agent = tenant.agent().await;
    let discovered = modern(&agent).request("server/discover", "{}").await.expect(200)["result"].clone();
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    let greeted =
        Mcp::direct(&agent).request("initialize", &hello.to_string()).await.expect(200)["result"].clone();
    assert_eq!(greeted["protocolVersion"], "2025-06-18");
    for said in [discovered, greeted] {
        assert!(said["capabilities"]["tools"].is_object(), "{said}");
        let instructions = said["instructions"].as_str().unwrap();
        assert!(!instructions.contains("retrieve_tools"), "{said}");
    }
    for (method, member) in [("prompts/list", "prompts"), ("resources/list", "resources")] {
        let listed = Mcp::direct(&agent).request(method, "{}").await.expect(200);
        assert_eq!(listed["result"][member], json!([]), "{method}");
    }
}
