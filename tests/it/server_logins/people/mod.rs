//! Logins of people at servers (authorization code with PKCE), on three replicas.

mod begun;
mod commands;
mod pages;
mod renewal;
mod scopes;
mod secrecy;

use reqwest::Method;
use serde_json::{Value, json};

use super::{Replicas, SOON, call, put, server, tools};
use crate::support::{Answer, Api, AuthServer, Gateway, Tenant, Upstream, Visitor, settle};

/// Public URL of the gateway.
const GATEWAY: &str = "https://gw.example";
/// Settings of these tests.
const SETTINGS: [(&str, &str); 1] = [("MCPPROXY__SERVER__PUBLIC_URL", GATEWAY)];
/// Address at which a program waits for the browser.
const PROGRAM: &str = "http://127.0.0.1:9/done";

/// Three replicas, a tenant, a server whose people log in at an authorization server, and an admin who listed it.
struct Scene {
    replicas: Replicas,
    tenant: Tenant,
    logins: AuthServer,
    upstream: Upstream,
    admin: Api,
}

impl Scene {
    async fn with(settings: &[(&str, &str)], upstream: Upstream) -> Scene {
        let replicas = Replicas::start(&[&SETTINGS[..], settings].concat()).await;
        let tenant = replicas.stage.tenant("acme").await;
        let logins = AuthServer::start().await;
        upstream.guard(logins.check());
        upstream.name_issuer(&logins.url);
        let body = json!({"name": "up", "kind": "http", "url": upstream.url});
        tenant.platform.post("/api/v1/servers", &body).await.expect(201);
        let shown = put(&tenant.platform, "up", &json!({"kind": "authorization_code"})).await.expect(200);
        assert_eq!(shown["connection"], "login_required", "{shown}");
        let admin = tenant.admin().await;
        let scene = Scene { replicas, tenant, logins, upstream, admin };
        scene.logins.change(|rules| rules.subject = "the-admin".to_owned());
        let gateway = &scene.replicas.stage.gateway;
        connect(gateway, &scene.admin, true).await.expect(200);
        let shown = server(&scene.admin, "up").await;
        assert_eq!(
            (&shown["connection"], &shown["oauth"]["state"]),
            (&json!("connected"), &json!("connected")),
            "{shown}"
        );
        scene
    }

    async fn start() -> Scene {
        Scene::with(&[], Upstream::modern(tools()).await).await
    }

    /// An agent who has logged in at the server as this person.
    async fn agent(&self, subject: &str) -> Api {
        let agent = self.tenant.agent().await;
        self.logins.change(|rules| rules.subject = subject.to_owned());
        connect(&self.replicas.stage.gateway, &agent, false).await.expect(200);
        agent
    }
}

/// Begins a login for a program, and returns the URL for the browser.
async fn begin(api: &Api, for_listing: bool) -> String {
    let body = json!({"redirect_uri": PROGRAM, "for_listing": for_listing});
    let begun = api.post("/api/v1/servers/up/connections", &body).await.expect(201);
    begun["url"].as_str().unwrap().to_owned()
}

/// Goes to the authorization server with a browser. Returns the path by which it sends the browser back to the gateway.
async fn log_in_there(url: &str) -> String {
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    let answer = client.build().unwrap().get(url).send().await.unwrap();
    let back = answer.headers()["location"].to_str().unwrap();
    back.strip_prefix(GATEWAY).unwrap().to_owned()
}

/// Brings a browser back to the gateway. Returns the code that it carries to the program.
async fn return_to(gateway: &Gateway, back: &str) -> String {
    let answer = Visitor::by(gateway, GATEWAY).get(back).await;
    assert_eq!(answer.status, 303, "{answer:?}");
    let (program, code) = answer.header("location").split_once("?code=").unwrap();
    assert_eq!(program, PROGRAM);
    code.to_owned()
}

async fn claim(api: &Api, code: &str) -> Answer {
    api.post("/api/v1/servers/up/connections/claim", &json!({"claim_token": code})).await
}

/// Logs in as a program does, with a browser that comes back to this replica.
pub async fn connect(gateway: &Gateway, api: &Api, for_listing: bool) -> Answer {
    let back = log_in_there(&begin(api, for_listing).await).await;
    let code = return_to(gateway, &back).await;
    claim(api, &code).await
}

/// Waits until a call goes through, at each replica.
async fn calls_pass(scene: &Scene, api: &Api) {
    for at in scene.replicas.each(api) {
        settle("ok".to_owned(), SOON, || async { call(&at, "up:t").await.code() }).await;
    }
}

async fn connections(api: &Api) -> Vec<Value> {
    api.ask(Method::GET, "/api/v1/servers/up/connections", None).await.expect(200)["items"]
        .as_array()
        .unwrap()
        .clone()
}
