//! Scopes that a server asks for beyond those of a login.

use serde_json::json;

use super::{Scene, begin, call, calls_pass, claim, log_in_there, return_to};
use crate::server_logins::tools;
use crate::support::Upstream;

#[tokio::test]
async fn a_server_that_wants_more_says_what_and_gets_it() {
    let upstream = Upstream::modern(tools()).await;
    let scene = Scene::with(&[], upstream).await;
    let agent = scene.agent("ana").await;
    calls_pass(&scene, &agent).await;
    let begun = scene.logins.begun().pop().unwrap();
    assert_eq!(begun["scope"], "tools:use", "the scope of the challenge");
    let scope_of = scene.logins.scopes();
    scene
        .upstream
        .want_scope("tools:write", move |token| scope_of(token).split(' ').any(|own| own == "tools:write"));
    let says = "Server 'up' asks for more permissions (tools:write): run mcpproxy upstream connect up";
    let asked = scene.logins.asked("refresh_token").len();
    for at in scene.replicas.each(&agent) {
        let refused = call(&at, "up:t").await.refused("upstream_login_required");
        assert!(refused.to_string().contains(says), "{refused}");
    }
    assert_eq!(
        scene.logins.asked("refresh_token").len(),
        asked,
        "another token of the same scopes does not help"
    );
    scene.logins.change(|rules| rules.subject = "ana".to_owned());
    let back = log_in_there(&begin(&agent, false).await).await;
    let begun = scene.logins.begun().pop().unwrap();
    assert_eq!(begun["scope"], "tools:use tools:write", "what it had, and what it needs");
    let code = return_to(&scene.replicas.stage.gateway, &back).await;
    claim(&agent, &code).await.expect(200);
    calls_pass(&scene, &agent).await;
    assert_eq!(json!(scene.upstream.counts().calls > 0), json!(true));
}
