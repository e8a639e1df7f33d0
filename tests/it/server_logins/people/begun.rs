//! Logins that a program begins: each step at another replica, and each person apart.

use serde_json::json;

use super::{
    GATEWAY, PROGRAM, Scene, begin, call, calls_pass, claim, connect, connections, log_in_there, return_to,
};
use crate::server_logins::{put, server, tools};
use crate::support::upstream::Offers;
use crate::support::{Mcp, Stage, Upstream, Visitor, settle};

#[tokio::test]
async fn each_step_may_reach_another_replica() {
    let scene = Scene::start().await;
    let agent = scene.tenant.agent().await;
    let [here, there, elsewhere] = scene.replicas.each(&agent);
    let refused = call(&here, "up:t").await.refused("upstream_login_required");
    let says = "Server 'up' needs a person's login: run mcpproxy upstream connect up";
    assert!(refused.to_string().contains(says), "{refused}");
    let rest = here.post("/api/v1/tools/call", &json!({"name": "up:t", "tool_variant": "call_tool_write"}));
    assert_eq!(rest.await.status, 403);
    assert_eq!(scene.upstream.counts().calls, 0, "nothing was sent");

    let url = url::Url::parse(&begin(&here, false).await).unwrap();
    assert!(url.as_str().starts_with(&format!("{}/authorize?", scene.logins.url)));
    scene.logins.change(|rules| rules.subject = "ana".to_owned());
    let back = log_in_there(url.as_str()).await;
    let code = return_to(&scene.replicas.others[0], &back).await;
    let claimed = claim(&elsewhere, &code).await.expect(200);
    assert_eq!(claimed, json!({"server": "up", "for_listing": false}));
    calls_pass(&scene, &agent).await;
    let begun = scene.logins.begun().pop().unwrap();
    // a redirect of its own: another login service's answer comes to another place
    let id = server(&scene.admin, "up").await["id"].as_str().unwrap().to_owned();
    let redirect = format!("{GATEWAY}/oauth/callback/{id}");
    assert_eq!(begun["redirect_uri"], redirect);
    assert_eq!(
        (begun["code_challenge_method"].as_str(), begun["response_type"].as_str(), &begun["resource"]),
        ("S256", "code", &scene.upstream.url)
    );
    let asked = scene.logins.asked("authorization_code").pop().unwrap();
    assert_eq!((asked.form["code_verifier"].len(), &asked.form["resource"]), (43, &scene.upstream.url));
    // the gateway registered itself, as a public client
    let registered = scene.logins.registered();
    assert_eq!(registered.len(), 1);
    assert_eq!(registered[0]["redirect_uris"], json!([redirect]));
    assert_eq!((&asked.form["client_id"], asked.header), (&begun["client_id"], None));
    // what came back works once
    assert_eq!(Visitor::by(&scene.replicas.stage.gateway, GATEWAY).get(&back).await.status, 400);
    claim(&there, &code).await.refused(404, "not_found");
    // the list is for those who may see servers
    there.get("/api/v1/servers/up/connections").await.refused(403, "forbidden");
    let shown = connections(&scene.admin).await;
    assert_eq!(shown.len(), 2);
    let own = shown.iter().find(|shown| shown["principal_id"] == json!(agent.id)).unwrap();
    assert_eq!((&own["state"], &own["for_listing"]), (&json!("connected"), &json!(false)));
}

#[tokio::test]
async fn a_code_is_worth_nothing_to_another_key() {
    let scene = Scene::start().await;
    let (victim, thief) = (scene.tenant.agent().await, scene.tenant.agent().await);
    // a link that was passed on ends at the program of whoever opens it, on that person's machine
    let back = log_in_there(&begin(&thief, false).await).await;
    let code = return_to(&scene.replicas.stage.gateway, &back).await;
    claim(&victim, &code).await.refused(404, "not_found");
    // another server's name does not claim it either
    let other = Upstream::modern(tools()).await;
    scene.tenant.add("other", &other).await;
    thief
        .post("/api/v1/servers/other/connections/claim", &json!({"claim_token": code}))
        .await
        .refused(404, "not_found");
    assert_eq!(call(&victim, "up:t").await.code(), "upstream_login_required");
    claim(&thief, &code).await.expect(200);
    calls_pass(&scene, &thief).await;
    assert_eq!(call(&victim, "up:t").await.code(), "upstream_login_required");
    // a program elsewhere gets no browser
    for place in ["https://evil.example/done", "http://127.0.0.1.evil.example/", "http://10.0.0.1:80/x"] {
        let body = json!({"redirect_uri": place});
        victim.post("/api/v1/servers/up/connections", &body).await.refused(400, "invalid_request");
    }
    let body = json!({"redirect_uri": PROGRAM, "for_listing": true});
    victim.post("/api/v1/servers/up/connections", &body).await.refused(403, "forbidden");
    let body = json!({"redirect_uri": PROGRAM});
    scene.tenant.platform.post("/api/v1/servers/up/connections", &body).await.refused(403, "forbidden");
    victim.post("/api/v1/servers/other/connections", &body).await.refused(409, "conflict");
    victim.post("/api/v1/servers/none/connections", &body).await.refused(404, "not_found");
    let blind = scene.tenant.agent_with(json!({"allowed_tools": ["other:*"]})).await;
    blind.post("/api/v1/servers/up/connections", &body).await.refused(404, "not_found");
}

/// On every method, the token of whoever asks goes along, over connections and sessions of their own.
#[tokio::test]
async fn two_people_never_meet_at_a_server() {
    let upstream = Upstream::handshake(tools()).await;
    upstream.set_offers(Offers { prompts: Offers::prompts(&["p"]).prompts, ..Offers::resources(&["r://x"]) });
    let scene = Scene::with(&[("MCPPROXY__DIRECT__ENABLED", "true")], upstream).await;
    let people = [("ana", scene.agent("ana").await), ("bob", scene.agent("bob").await)];
    for (_, api) in &people {
        let key = format!("/api/v1/keys/{}/settings", api.id);
        let version = scene.admin.get(&key).await.expect(200)["version"].clone();
        let direct = json!({"direct_endpoint": true, "version": version});
        scene.admin.patch(&key, &direct).await.expect(200);
        calls_pass(&scene, api).await;
    }
    for (name, api) in &people {
        let before = scene.upstream.sent("authorization").len();
        for at in scene.replicas.each(api) {
            call(&at, "up:t").await.ok();
            let direct = Mcp::direct(&at);
            for (method, params) in [
                ("prompts/get", r#"{"name":"up:p"}"#),
                ("resources/read", r#"{"uri":"r://x"}"#),
                (
                    "completion/complete",
                    r#"{"ref":{"type":"ref/prompt","name":"up:p"},"argument":{"name":"a","value":"b"}}"#,
                ),
            ] {
                drop(direct.request(method, params).await);
            }
        }
        let own: Vec<String> =
            scene.logins.tokens_of(name).iter().map(|token| format!("Bearer {token}")).collect();
        let sent = scene.upstream.sent("authorization");
        let sent = &sent[before..];
        assert!(sent.len() >= 6, "{sent:?}");
        assert!(sent.iter().all(|header| own.contains(header)), "{name}: {sent:?}");
    }
    for method in ["tools/call", "prompts/get", "resources/read"] {
        assert!(
            scene.upstream.asked_of(method) >= 6 || method == "tools/call",
            "{method}: {:?}",
            scene.upstream.asked()
        );
    }
    // each has upstream sessions of their own, and those of the admin who lists the server are a third kind
    let calls = scene.upstream.calls();
    let sessions = |name: &str| {
        let own = scene.logins.tokens_of(name);
        let of = calls
            .iter()
            .filter(|call| own.iter().any(|token| call.headers["authorization"].ends_with(token)));
        of.map(|call| call.headers["mcp-session-id"].clone()).collect::<std::collections::BTreeSet<_>>()
    };
    assert!(!sessions("ana").is_empty() && sessions("ana").is_disjoint(&sessions("bob")));
}

#[tokio::test]
async fn a_login_that_ends_at_one_replica_has_ended_at_all() {
    let scene = Scene::start().await;
    let (ana, bob) = (scene.agent("ana").await, scene.agent("bob").await);
    for api in [&ana, &bob] {
        calls_pass(&scene, api).await;
    }
    let initialized = scene.upstream.counts().listens;
    let shown = connections(&scene.admin).await;
    let own = shown.iter().find(|shown| shown["principal_id"] == json!(ana.id)).unwrap();
    let path = format!("/api/v1/servers/up/connections/{}", own["id"].as_str().unwrap());
    scene.admin.delete(&path).await.expect(204);
    scene.admin.delete(&path).await.refused(404, "not_found");
    for at in scene.replicas.each(&ana) {
        settle("upstream_login_required".to_owned(), super::SOON, || async {
            call(&at, "up:t").await.code()
        })
        .await;
    }
    for at in scene.replicas.each(&bob) {
        call(&at, "up:t").await.ok();
    }
    assert_eq!(scene.upstream.counts().listens, initialized, "connections of others go on");
    // both tokens are revoked, the one that renews first
    settle(2, super::SOON, || async { scene.logins.revoked().len() }).await;
    let hints: Vec<String> =
        scene.logins.revoked().iter().map(|asked| asked.form["token_type_hint"].clone()).collect();
    assert_eq!(hints, ["refresh_token", "access_token"]);
    // somebody may log in again, as another person
    scene.logins.change(|rules| rules.subject = "ann".to_owned());
    connect(&scene.replicas.stage.gateway, &ana, false).await.expect(200);
    calls_pass(&scene, &ana).await;
    assert_eq!(scene.logins.tokens_of("ann").len(), 1);
}

#[tokio::test]
async fn a_server_says_who_has_to_log_in() {
    let stage = Stage::with(&super::SETTINGS).await;
    let tenant = stage.tenant("acme").await;
    let logins = crate::support::AuthServer::start().await;
    let upstream = Upstream::modern(tools()).await;
    upstream.guard(logins.check());
    upstream.name_issuer(&logins.url);
    let body = json!({"name": "up", "kind": "http", "url": upstream.url});
    tenant.platform.post("/api/v1/servers", &body).await.expect(201);
    // a client of one's own belongs to an authorization server that somebody names
    let own = json!({"kind": "authorization_code", "client_id": "mine"});
    let refused = put(&tenant.platform, "up", &own).await.refused(400, "invalid_request");
    assert!(refused.contains(&logins.url), "{refused}");
    // without PKCE, nobody is sent there
    logins.change(|rules| rules.metadata = json!({"code_challenge_methods_supported": null}));
    let any = json!({"kind": "authorization_code"});
    let refused = put(&tenant.platform, "up", &any).await.refused(400, "invalid_request");
    assert!(refused.contains("S256"), "{refused}");
    // without registration, a person has to register the gateway
    logins.change(|rules| rules.metadata = json!({"registration_endpoint": null}));
    let refused = put(&tenant.platform, "up", &any).await.refused(400, "invalid_request");
    assert!(refused.contains(&format!("{GATEWAY}/oauth/callback")), "{refused}");
    // the gateway's metadata is its id where that is taken
    logins.change(|rules| rules.metadata = json!({"client_id_metadata_document_supported": true}));
    let shown = put(&tenant.platform, "up", &any).await.expect(200);
    let id = shown["id"].as_str().unwrap().to_owned();
    let metadata = format!("/oauth/client/{id}.json");
    assert_eq!(
        (&shown["oauth"]["registration"], &shown["oauth"]["client_id"]),
        (&json!("metadata_document"), &json!(format!("{GATEWAY}{metadata}")))
    );
    assert!(logins.registered().is_empty());
    let shown = stage.gateway.anonymous().get(&metadata).await.expect(200);
    assert_eq!(
        (&shown["redirect_uris"], &shown["client_id"]),
        (&json!([format!("{GATEWAY}/oauth/callback/{id}")]), &json!(format!("{GATEWAY}{metadata}")))
    );
    let shown = server(&tenant.platform, "up").await;
    assert_eq!(shown["connection"], "login_required");
    assert!(
        shown["last_error"].as_str().unwrap().contains("mcpproxy upstream connect NAME --for-listing"),
        "{shown}"
    );
    // a server that names another authorization server leads nobody there
    let evil = crate::support::AuthServer::start().await;
    upstream.name_issuer(&evil.url);
    let admin = tenant.admin().await;
    let body = json!({"redirect_uri": PROGRAM});
    let changed =
        admin.post("/api/v1/servers/up/connections", &body).await.refused(503, "upstream_auth_changed");
    assert!(changed.contains("an administrator must confirm it"), "{changed}");
    assert!(evil.begun().is_empty());
}

/// Without a public URL there is no place for browsers to come back to.
#[tokio::test]
async fn people_need_a_public_url() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let logins = crate::support::AuthServer::start().await;
    let upstream = Upstream::modern(tools()).await;
    upstream.guard(logins.check());
    upstream.name_issuer(&logins.url);
    let body = json!({"name": "up", "kind": "http", "url": upstream.url});
    tenant.platform.post("/api/v1/servers", &body).await.expect(201);
    let refused =
        put(&tenant.platform, "up", &json!({"kind": "authorization_code"})).await.refused(409, "conflict");
    assert!(refused.contains("server.public_url"), "{refused}");
}

/// A login is its holder's: it ends with the key, with the person, and when the key changes hands.
#[tokio::test]
async fn logins_end_with_their_holder() {
    let scene = Scene::start().await;
    let (kept, handed, revoked) =
        (scene.agent("ana").await, scene.agent("bob").await, scene.agent("eve").await);
    for api in [&kept, &handed, &revoked] {
        calls_pass(&scene, api).await;
    }
    let key = scene.admin.get(&format!("/api/v1/keys/{}", handed.id)).await.expect(200);
    let patch = json!({"owner": "somebody-else", "version": key["version"]});
    scene.admin.patch(&format!("/api/v1/keys/{}", handed.id), &patch).await.expect(200);
    scene.admin.delete(&format!("/api/v1/keys/{}", revoked.id)).await.expect(204);
    for at in scene.replicas.each(&handed) {
        settle("upstream_login_required".to_owned(), super::SOON, || async {
            call(&at, "up:t").await.code()
        })
        .await;
    }
    let shown = connections(&scene.tenant.platform).await;
    let holders: Vec<&str> = shown.iter().filter_map(|row| row["principal_id"].as_str()).collect();
    assert_eq!(holders.len(), 2, "{shown:?}");
    assert!(holders.contains(&&*kept.id) && holders.contains(&&*scene.admin.id));
    // nor is the server listed any longer with the login of somebody who has gone
    scene.tenant.platform.delete(&format!("/api/v1/keys/{}", scene.admin.id)).await.expect(204);
    scene.tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    assert_eq!(server(&scene.tenant.platform, "up").await["connection"], "login_required");
    call(&kept, "up:t").await.ok();
    // what is left is shown, and can be ended
    let shown = connections(&scene.tenant.platform).await;
    let holders: Vec<&str> = shown.iter().filter_map(|row| row["principal_id"].as_str()).collect();
    assert_eq!(holders, [&*kept.id], "{shown:?}");
    assert!(shown.iter().all(|row| row["for_listing"] != true), "{shown:?}");
}
