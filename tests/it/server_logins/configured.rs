//! Configuration: by REST, by the command line, by a file; what servers say about their authorization server; faults.

use std::fs;

use serde_json::{Value, json};

use super::{add, call, guarded, login, put, server, tools};
use crate::support::{AuthServer, Idp, Stage, TokenServer, Upstream, cli, cli_with, secret_of};

#[tokio::test]
async fn the_servers_challenge_names_the_login_service() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let tokens = TokenServer::start().await;
    let upstream = guarded(&tokens, Upstream::modern(tools()).await).await;
    tenant
        .platform
        .post("/api/v1/servers", &json!({"name": "up", "kind": "http", "url": upstream.url}))
        .await
        .expect(201);
    let mut bare = login(&tokens, "gw");
    bare.as_object_mut().unwrap().remove("token_endpoint");
    let refused = put(&tenant.platform, "up", &bare).await.refused(400, "invalid_request");
    assert!(refused.to_string().contains("give issuer or token_endpoint"), "{refused}");
    upstream.name_issuer(&tokens.url);
    // the secret goes where an administrator sends it: the server's word is shown, and nothing more
    let refused = put(&tenant.platform, "up", &bare).await;
    refused.refused(400, "invalid_request");
    let error = refused.json()["error"].clone();
    assert_eq!(error["field"], "issuer");
    assert!(error["message"].as_str().unwrap().contains(&tokens.url), "{error}");
    assert!(tokens.asked().is_empty(), "no secret was sent");
    let mut named = bare.clone();
    named["issuer"] = json!(tokens.url);
    let shown = put(&tenant.platform, "up", &named).await.expect(200);
    let expected = json!({
        "kind": "client_credentials", "issuer": tokens.url, "token_endpoint": tokens.endpoint(),
        "resource": upstream.url, "scopes": ["tools:use"], "client_id": "gw", "client_auth": "client_secret_basic",
        "state": "connected", "last_error": null, "registration": "given", "authorization_endpoint": null,
        "audience": null, "exchange_grant": null,
    });
    assert_eq!(shown["oauth"], expected);
    let asked = tokens.asked();
    let form = &asked.last().unwrap().form;
    assert_eq!((&*form["grant_type"], &*form["scope"]), ("client_credentials", "tools:use"));
    call(&tenant.agent().await, "up:t").await.ok();
    // a secret that is given again stays with its authorization server, whatever the server names by then
    let evil = TokenServer::start().await;
    upstream.name_issuer(&evil.url);
    assert_eq!(put(&tenant.platform, "up", &bare).await.expect(200)["oauth"], expected);
    assert!(evil.asked().is_empty(), "no secret was sent");
    upstream.name_issuer(&tokens.url);
    // an issuer alone; no resource; the secret in the form
    let mut issuer = bare.clone();
    issuer["issuer"] = json!(tokens.url);
    issuer["resource"] = json!("");
    issuer["scopes"] = json!([]);
    issuer["client_auth"] = json!("client_secret_post");
    let shown = put(&tenant.platform, "up", &issuer).await.expect(200);
    assert_eq!((&shown["oauth"]["resource"], &shown["connection"]), (&Value::Null, &json!("connected")));
    let form = tokens.asked().last().unwrap().form.clone();
    assert!(!form.contains_key("resource") && !form.contains_key("scope"), "{form:?}");
    assert_eq!(form["client_secret"], secret_of("gw"));
    // metadata of another issuer
    issuer["issuer"] = json!(format!("{}/other", tokens.url));
    put(&tenant.platform, "up", &issuer).await.refused(400, "invalid_request");
}

#[tokio::test]
async fn faults_say_what_to_do() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let tokens = TokenServer::start().await;
    let upstream = guarded(&tokens, Upstream::modern(tools()).await).await;
    let added = add(&tenant, "up", &upstream, &login(&tokens, "gw")).await;
    for (field, value) in [
        ("kind", json!("password")),
        ("client_id", json!("")),
        ("client_id", json!("a\nb")),
        ("client_secret", json!("")),
        ("client_secret", json!(["x"])),
        ("token_endpoint", json!("nowhere")),
        ("token_endpoint", json!(format!("{}#x", tokens.endpoint()))),
        ("issuer", json!("nowhere")),
        ("resource", json!("nowhere")),
        ("scopes", json!(["a b"])),
        ("scopes", json!("a")),
        ("client_auth", json!("none")),
    ] {
        let mut wrong = login(&tokens, "gw");
        wrong[field] = value;
        let refused = put(&tenant.platform, "up", &wrong).await;
        refused.refused(400, "invalid_request");
        assert_eq!(refused.json()["error"]["field"], field, "{refused:?}");
    }
    let mut old = login(&tokens, "gw");
    old["version"] = json!(1);
    put(&tenant.platform, "up", &old).await.refused(409, "conflict");
    put(&tenant.auditor().await, "up", &old).await.refused(403, "forbidden");
    put(&tenant.platform, "nobody", &login(&tokens, "gw")).await.refused(404, "not_found");
    // a header and a token cannot have one place
    let header = json!({"headers": {"authorization": "Bearer x"}});
    tenant.platform.patch("/api/v1/servers/up", &header).await.refused(400, "invalid_request");
    assert_eq!(server(&tenant.platform, "up").await["version"], added["version"]);
    tenant.platform.patch("/api/v1/servers/up", &json!({"headers": {"X-Team": "a"}})).await.expect(200);
    call(&tenant.agent().await, "up:t").await.ok();
    assert_eq!(upstream.sent("x-team").last().unwrap(), "a");
    tenant.platform.delete("/api/v1/servers/up/oauth").await.expect(204);
    tenant.platform.delete("/api/v1/servers/up/oauth").await.refused(404, "not_found");
    tenant.platform.patch("/api/v1/servers/up", &header).await.expect(200);
    put(&tenant.platform, "up", &login(&tokens, "gw")).await.refused(409, "conflict");
    let connections = tenant.auditor().await.get("/api/v1/servers/up/connections").await.expect(200);
    assert_eq!(connections, json!({"items": [], "next_cursor": null}));
}

#[tokio::test]
async fn the_command_line_adds_a_login() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let tokens = TokenServer::start().await;
    let upstream = guarded(&tokens, Upstream::handshake(tools()).await).await;
    upstream.name_issuer(&tokens.url);
    let secret = secret_of("gw");
    let add =
        ["upstream", "add", "up", &upstream.url, "--oauth-client-id", "gw", "--oauth-client-secret", &secret];
    let unnamed = cli(&tenant.platform, &add).await;
    assert!(unnamed.err.contains(&tokens.url), "{}", unnamed.err);
    let named = ["upstream", "update", "up", "--oauth-client-id", "gw", "--oauth-issuer", &tokens.url];
    let added = cli(&tenant.platform, &[&named[..], &["--oauth-client-secret", &secret]].concat()).await.ok();
    assert!(added.out.contains("client_credentials") && !added.out.contains("s3cret"), "{}", added.out);
    assert_eq!(server(&tenant.platform, "up").await["connection"], "connected");
    call(&tenant.agent().await, "up:t").await.ok();
    cli(&tenant.platform, &["upstream", "update", "up", "--no-oauth"]).await.ok();
    assert!(server(&tenant.platform, "up").await.get("oauth").is_none());
    let half = ["upstream", "update", "up", "--oauth-client-id", "gw"];
    cli(&tenant.platform, &half).await.failed(2, "--oauth-client-secret");
}

#[tokio::test]
async fn a_file_declares_a_login() {
    let stage = Stage::start().await;
    let tokens = TokenServer::start().await;
    let upstream = guarded(&tokens, Upstream::modern(tools()).await).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tenants.yaml");
    let declare = |scope: &str| {
        let text = format!(
            "tenants:\n- name: acme\n  servers:\n  - name: up\n    url: {}\n    oauth:\n      client_id: gw\n      \
             client_secret: {{env: GW_SECRET}}\n      token_endpoint: {}\n      scopes: [{scope}]\n",
            upstream.url,
            tokens.endpoint()
        );
        fs::write(&file, text).unwrap();
    };
    let platform = stage.platform();
    let secret = secret_of("gw");
    let key = platform.key.clone().unwrap();
    let env = [("MCPPROXY_URL", &*stage.gateway.url), ("MCPPROXY_API_KEY", &*key), ("GW_SECRET", &*secret)];
    let apply = async |more: &[&str]| {
        let path = file.to_str().unwrap();
        cli_with(&env, &[&["apply", "-f", path], more].concat()).await
    };
    declare("one");
    let first = apply(&[]).await.ok();
    assert!(!first.out.contains("s3cret") && !first.err.contains("s3cret"));
    let acme = platform.as_tenant("acme");
    let shown = server(&acme, "up").await;
    assert_eq!((&shown["connection"], &shown["oauth"]["scopes"]), (&json!("connected"), &json!(["one"])));
    let asked = tokens.asked().len();
    apply(&[]).await.ok();
    assert_eq!(
        (tokens.asked().len(), server(&acme, "up").await["version"].clone()),
        (asked, shown["version"].clone())
    );
    declare("two");
    apply(&[]).await.ok();
    assert_eq!(server(&acme, "up").await["oauth"]["scopes"], json!(["two"]));
    fs::write(
        &file,
        format!("tenants: [{{name: acme, servers: [{{name: up, url: '{}', oauth: null}}]}}]", upstream.url),
    )
    .unwrap();
    apply(&[]).await.ok();
    assert!(server(&acme, "up").await.get("oauth").is_none());
}

#[tokio::test]
async fn a_file_declares_the_logins_of_people() {
    let stage = Stage::with(&[("MCPPROXY__SERVER__PUBLIC_URL", "https://gw.example")]).await;
    let (logins, idp, tokens) = (AuthServer::start().await, Idp::start().await, TokenServer::start().await);
    let metadata = json!({
        "token_endpoint": tokens.endpoint(), "token_endpoint_auth_methods_supported": ["client_secret_basic"],
    });
    idp.log_in(|login| login.metadata = metadata);
    let (own, common) = (Upstream::modern(tools()).await, Upstream::modern(tools()).await);
    own.guard(logins.check());
    own.name_issuer(&logins.url);
    common.guard(tokens.check());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tenants.yaml");
    let text = format!(
        "tenants:
- name: acme
  servers:
  - name: own
    url: {}
    oauth: {{ kind: authorization_code, scopes: [tickets] }}
  - name: common
    url: {}
    oauth:
      kind: token_exchange
      client_id: gw
      client_secret: {{env: GW_SECRET}}
      issuer: {}
      audience: tickets
      resource: ''
  identity_rules:
  - {{ role: agent }}
issuers:
- name: corp
  issuer: {}
  audiences: [people]
  tenant: acme
",
        own.url, common.url, idp.url, idp.url
    );
    fs::write(&file, &text).unwrap();
    let platform = stage.platform();
    let secret = secret_of("gw");
    let key = platform.key.clone().unwrap();
    let env = [("MCPPROXY_URL", &*stage.gateway.url), ("MCPPROXY_API_KEY", &*key), ("GW_SECRET", &*secret)];
    let apply = async || cli_with(&env, &["apply", "-f", file.to_str().unwrap()]).await;
    let first = apply().await.ok();
    assert!(!first.out.contains("s3cret"), "{first:?}");
    let acme = platform.as_tenant("acme");
    let (own, common) = (server(&acme, "own").await, server(&acme, "common").await);
    assert_eq!((&own["connection"], &own["oauth"]["issuer"]), (&json!("login_required"), &json!(logins.url)));
    assert_eq!(
        (&common["connection"], &common["oauth"]["audience"]),
        (&json!("connected"), &json!("tickets"))
    );
    assert_eq!(apply().await.ok().out.trim(), "nothing to change");
    let person = stage.gateway.anonymous().with_key(&idp.token("ana", "people", json!({})));
    call(&person, "common:t").await.ok();
    let form = tokens.asked().last().unwrap().form.clone();
    assert!(form.contains_key("subject_token") && !form.contains_key("resource"), "{form:?}");
}

/// A server without a login that turns out to want one, and one whose words are meant for a shell.
#[tokio::test]
async fn a_server_that_wants_a_login_says_so() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let tokens = TokenServer::start().await;
    for upstream in [Upstream::handshake(tools()).await, Upstream::modern(tools()).await] {
        upstream.guard(tokens.check());
        upstream.name_issuer(&tokens.url);
        let added = cli(&tenant.platform, &["upstream", "add", "up", &upstream.url]).await;
        let says = format!(
            "it wants a login (OAuth) with {}: let each person log in (mcpproxy upstream update up --oauth authorization_code), or the \
             gateway itself (--oauth-client-id ID --oauth-client-secret - --oauth-issuer {})",
            tokens.url, tokens.url
        );
        assert!(format!("{}{}", added.out, added.err).contains(&says), "{added:?}");
        let shown = server(&tenant.platform, "up").await;
        assert_eq!((&shown["connection"], &shown["last_error"]), (&json!("login_required"), &json!(says)));
        assert!(shown.get("oauth").is_none());
        let doctor = cli(&tenant.platform, &["doctor"]).await;
        assert!(
            doctor.out.contains("server   'up' needs its login") && doctor.out.contains(&says),
            "{}",
            doctor.out
        );
        let secret = secret_of("gw");
        let given = ["upstream", "update", "up", "--oauth-client-id", "gw", "--oauth-client-secret", &secret];
        cli(&tenant.platform, &[&given[..], &["--oauth-issuer", &tokens.url]].concat()).await.ok();
        assert_eq!(server(&tenant.platform, "up").await["connection"], "connected");
        // without it, it wants one again
        cli(&tenant.platform, &["upstream", "update", "up", "--no-oauth"]).await.ok();
        assert_eq!(server(&tenant.platform, "up").await["connection"], "login_required");
        upstream.name_issuer("https://evil.example/$(reboot)");
        tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
        let shown = server(&tenant.platform, "up").await;
        assert!(!shown.to_string().contains("reboot"), "{shown}");
        assert!(shown["last_error"].as_str().unwrap().contains("it wants credentials or a login"), "{shown}");
        upstream.guard(|_| true);
        tenant.platform.delete("/api/v1/servers/up").await.expect(204);
    }
}
