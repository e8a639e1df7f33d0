//! The OpenAPI document against what is served: parameters, fields of bodies and roles, as the gateway itself names
//! them. (The routes: `faces/rest/document.rs`. Answers: every one that any test gets over REST.)

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Api, Document, Stage, Tenant};

const ROLES: [&str; 5] = ["agent", "auditor", "operator", "admin", "approver"];
/// A name that nothing has.
const NOBODY: &str = "no-such-name";

/// An address for a path with parts; nothing is there.
fn concrete(path: &str) -> String {
    let id = if path.starts_with("/activity") {
        "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    } else {
        "00000000-0000-4000-8000-000000000000"
    };
    format!("/api/v1{}", path.replace("{name}", "none").replace("{id}", id).replace("{tool}", "none"))
}

fn method(name: &str) -> Method {
    name.to_uppercase().parse().unwrap()
}

/// Every role as a caller, the platform's acting in the tenant; its name first.
async fn callers(tenant: &Tenant) -> Vec<(&'static str, Api)> {
    let mut callers = vec![("platform", tenant.platform.clone())];
    for role in ROLES {
        callers.push((role, tenant.key(&json!({ "role": role })).await));
    }
    callers
}

/// What an error says is known.
fn known(message: &str) -> BTreeSet<String> {
    match message.split_once("; known: ") {
        Some((_, names)) => names.split(", ").map(str::to_owned).collect(),
        None => BTreeSet::new(),
    }
}

/// The names of the members that a body may have, whichever of several forms it takes.
fn members(document: &Document, schema: &Value) -> BTreeSet<String> {
    let schema = document.resolve(schema);
    let forms = schema["oneOf"].as_array().into_iter().flatten();
    let of_forms = forms.flat_map(|form| members(document, form));
    let own = schema["properties"].as_object().into_iter().flat_map(|members| members.keys().cloned());
    own.chain(of_forms).collect()
}

#[tokio::test]
async fn it_is_served_as_it_is_committed() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let answer = tenant.approver().await.get("/api/v1/openapi.json").await;
    assert_eq!(answer.expect(200), *Document::get().value());
    stage.gateway.anonymous().get("/api/v1/openapi.json").await.refused(401, "unauthenticated");
}

/// Whoever may not use a route is told so before anything is said of its parameters, and whoever may is not.
#[tokio::test]
async fn roles_and_parameters_are_what_it_says() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let document = Document::get();
    for (role, api) in callers(&tenant).await {
        for operation in document.operations() {
            let what = format!("{role}: {} {} in docs/openapi.json", operation.method, operation.path);
            let path = format!("{}?{NOBODY}=1", concrete(operation.path));
            let answer = api.ask(method(operation.method), &path, None).await;
            let roles = operation.said["x-roles"].as_array().unwrap();
            if !roles.contains(&role.into()) {
                let decides = operation.path.ends_with("/decision");
                answer.refused(403, if decides { "not_approver" } else { "forbidden" });
                continue;
            }
            assert_eq!(answer.status, 400, "{what}: x-roles says that it may: {answer:?}");
            let message = answer.refused(400, "invalid_request");
            let parameters = operation.said["parameters"].as_array().into_iter().flatten();
            let parameters = parameters.map(|parameter| document.resolve(parameter));
            let said: BTreeSet<String> = parameters
                .filter(|parameter| parameter["in"] == "query")
                .map(|parameter| parameter["name"].as_str().unwrap().to_owned())
                .collect();
            assert_eq!(said, known(&message), "{what}: its parameters, and those that the gateway takes");
        }
    }
}

#[tokio::test]
async fn bodies_are_what_it_says() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let document = Document::get();
    let key = tenant.agent().await.id;
    let mut bodies = 0;
    for operation in document.operations() {
        // of a key that is there, since its settings are looked at first
        let path = if operation.path == "/keys/{id}/settings" {
            format!("/api/v1/keys/{key}/settings")
        } else {
            concrete(operation.path)
        };
        // a search needs its words before it looks at anything else
        let path = if operation.path == "/tools" { format!("{path}?query=x") } else { path };
        let what = format!("{} {} in docs/openapi.json", operation.method, operation.path);
        let answer = tenant.platform.ask(method(operation.method), &path, Some(&json!({NOBODY: 1}))).await;
        let message = answer.refused(400, "invalid_request");
        let mut said =
            members(document, &operation.said["requestBody"]["content"]["application/json"]["schema"]);
        if message.starts_with("unknown setting") {
            assert!(said.remove("version"), "{what}");
        }
        bodies += usize::from(!said.is_empty());
        assert_eq!(said, known(&message), "{what}: members of its body, and those that the gateway takes");
    }
    assert!(bodies >= 9, "the test has lost sight of the bodies: {bodies}");
    // those of a key that is made, and of a server's bounds
    for (path, body, schema) in [
        ("/keys", json!({"role": "agent", "settings": {NOBODY: 1}}), "KeySettings"),
        (
            "/servers",
            json!({"name": "x", "kind": "http", "url": "http://127.0.0.1:9/", "limits": {NOBODY: 1}}),
            "ServerLimits",
        ),
    ] {
        let message =
            tenant.platform.post(&format!("/api/v1{path}"), &body).await.refused(400, "invalid_request");
        let said = members(document, &json!({"$ref": format!("#/components/schemas/{schema}")}));
        assert_eq!(said, known(&message), "docs/openapi.json: components.schemas.{schema}");
    }
}
