//! Logins of the gateway at servers that want tokens (OAuth, client credentials), on three replicas.

mod configured;
mod evil;
mod exchange;
mod failures;
pub mod people;
mod real;
mod secrecy;
mod tokens;

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Api, Gateway, Mcp, Stage, Tenant, TokenServer, Tool, Upstream, secret_of};

/// Longest wait for what takes a moment.
const SOON: Duration = Duration::from_secs(10);

/// Three replicas, of which the first is the stage's own.
struct Replicas {
    stage: Stage,
    others: Vec<Gateway>,
}

impl Replicas {
    async fn start(settings: &[(&str, &str)]) -> Replicas {
        let stage = Stage::with(settings).await;
        let mut others = Vec::new();
        for _ in 0..2 {
            others.push(Gateway::start(&stage.database, settings).await);
        }
        Replicas { stage, others }
    }

    /// Returns a caller at each replica.
    fn each(&self, api: &Api) -> [Api; 3] {
        [api.clone(), self.others[0].ask_as(api), self.others[1].ask_as(api)]
    }
}

/// A server with one tool, which takes only tokens of `tokens`.
pub async fn guarded(tokens: &TokenServer, upstream: Upstream) -> Upstream {
    upstream.guard(tokens.check());
    upstream
}

fn tools() -> Vec<Tool> {
    vec![Tool::writes("t")]
}

/// The login of a client at the token server.
pub fn login(tokens: &TokenServer, client: &str) -> Value {
    json!({
        "kind": "client_credentials", "client_id": client, "client_secret": secret_of(client),
        "token_endpoint": tokens.endpoint(),
    })
}

pub async fn put(api: &Api, name: &str, login: &Value) -> Answer {
    api.ask(Method::PUT, &format!("/api/v1/servers/{name}/oauth"), Some(login)).await
}

/// Adds a server and the login at it; it is listed when this returns.
pub async fn add(tenant: &Tenant, name: &str, upstream: &Upstream, login: &Value) -> Value {
    let body = json!({"name": name, "kind": "http", "url": upstream.url});
    tenant.platform.post("/api/v1/servers", &body).await.expect(201);
    let server = put(&tenant.platform, name, login).await.expect(200);
    assert_eq!(
        (&server["connection"], &server["last_error"]),
        (&json!("connected"), &Value::Null),
        "{server}"
    );
    server
}

async fn server(api: &Api, name: &str) -> Value {
    api.get(&format!("/api/v1/servers/{name}")).await.expect(200)
}

/// Forgets the token of a server, at all replicas.
async fn forget(api: &Api, name: &str) {
    let path = format!("/api/v1/servers/{name}/connections");
    let connections = api.get(&path).await.expect(200);
    let id = connections["items"][0]["id"].as_str().unwrap();
    api.delete(&format!("{path}/{id}")).await.expect(204);
}

async fn call(api: &Api, tool: &str) -> crate::support::Outcome {
    Mcp::bare(api).run("write", tool, &json!({})).await
}
