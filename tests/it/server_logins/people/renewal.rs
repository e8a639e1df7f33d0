//! Renewal of people's tokens: once over all replicas, where each renewing token is good once and reuse ends the login.

use std::time::Duration;

use futures_util::future::join_all;

use super::{SOON, Scene, call, calls_pass, connections};
use crate::server_logins::tools;
use crate::support::{AuthMood, Upstream, settle};

#[tokio::test]
async fn fifty_callers_at_each_replica_renew_once() {
    let scene = Scene::start().await;
    let agent = scene.agent("ana").await;
    calls_pass(&scene, &agent).await;
    for round in 1..4 {
        scene.logins.end_tokens();
        let calls = (0..50).flat_map(|_| scene.replicas.each(&agent));
        let codes = join_all(calls.map(|api| async move { call(&api, "up:t").await.code() })).await;
        let failed: Vec<&String> = codes.iter().filter(|code| *code != "ok").collect();
        assert!(failed.is_empty(), "{round}: {failed:?}");
        let renewed = scene.logins.asked("refresh_token");
        // the admin's login, with which the server is listed, may be renewed as well
        let own = scene.logins.tokens_of("ana").len();
        assert_eq!((own, scene.logins.reuses()), (round + 1, 0), "{}", renewed.len());
    }
    // the renewal names the resource and authenticates as the code did
    let asked = scene.logins.asked("refresh_token").pop().unwrap();
    assert_eq!(asked.form["resource"], scene.upstream.url);
}

#[tokio::test]
async fn a_token_is_renewed_before_it_ends() {
    let upstream = Upstream::modern(tools()).await;
    let scene = Scene::with(&[], upstream).await;
    scene.logins.change(|rules| rules.life = Duration::from_secs(6));
    let agent = scene.agent("ana").await;
    calls_pass(&scene, &agent).await;
    let refused = scene.upstream.challenged();
    settle(true, Duration::from_secs(30), || async {
        for api in scene.replicas.each(&agent) {
            call(&api, "up:t").await.ok();
        }
        scene.logins.tokens_of("ana").len() >= 4
    })
    .await;
    assert_eq!((scene.upstream.challenged(), scene.logins.reuses()), (refused, 0));
}

#[tokio::test]
async fn a_login_that_is_over_asks_for_the_person() {
    let scene = Scene::start().await;
    let agent = scene.agent("ana").await;
    calls_pass(&scene, &agent).await;
    scene.logins.end_logins();
    let asked = scene.logins.asked("refresh_token").len();
    let says = "Your login at server 'up' has ended: run mcpproxy upstream connect up";
    for at in scene.replicas.each(&agent) {
        let refused = call(&at, "up:t").await.refused("upstream_login_required");
        assert!(refused.to_string().contains(says), "{refused}");
    }
    let of_agent = scene.logins.asked("refresh_token").len() - asked;
    assert!(of_agent <= 2, "the agent's once, and the admin's once: {of_agent}");
    let shown = connections(&scene.admin).await;
    let own = shown.iter().find(|shown| shown["principal_id"] == serde_json::json!(agent.id)).unwrap();
    assert_eq!(own["state"], "login_required", "{own}");
    assert!(own["last_error"].as_str().unwrap().contains("invalid_grant"), "{own}");
}

/// While the login service is down, a token that has not ended serves on; afterwards calls wait for it.
#[tokio::test]
async fn an_outage_of_the_login_service_ends_no_login() {
    let scene = Scene::start().await;
    scene.logins.change(|rules| rules.life = Duration::from_secs(8));
    let agent = scene.agent("ana").await;
    calls_pass(&scene, &agent).await;
    scene.logins.set(AuthMood::Broken);
    settle("upstream_auth_unavailable".to_owned(), Duration::from_secs(20), || async {
        call(&agent, "up:t").await.code()
    })
    .await;
    scene.logins.set(AuthMood::Well);
    for at in scene.replicas.each(&agent) {
        settle("ok".to_owned(), Duration::from_secs(30), || async { call(&at, "up:t").await.code() }).await;
    }
    assert_eq!(scene.logins.reuses(), 0);
}

/// The replica that renews is killed before the login service has done anything: another does it in the time of the lease.
#[tokio::test]
async fn a_winner_that_is_killed_is_replaced() {
    let settings = [("MCPPROXY__OAUTH__TIMEOUT_S", "2"), ("MCPPROXY__OAUTH__REFRESH_LEASE_S", "3")];
    let mut scene = Scene::with(&settings, Upstream::modern(tools()).await).await;
    let agent = scene.agent("ana").await;
    calls_pass(&scene, &agent).await;
    let [first, winner, _] = scene.replicas.each(&agent);
    let renewed = || scene.logins.asked("refresh_token").len();
    let asked = renewed();
    // nobody else may be the winner
    scene.replicas.stage.gateway.freeze();
    scene.replicas.others[1].freeze();
    scene.logins.set(AuthMood::Held);
    scene.logins.end_tokens();
    let calling = tokio::spawn(async move { call(&winner, "up:t").await });
    settle(true, SOON, || async { renewed() > asked }).await;
    scene.replicas.others[0].kill();
    calling.abort();
    scene.replicas.stage.gateway.wake();
    scene.replicas.others[1].wake();
    scene.logins.set(AuthMood::Broken);
    settle(0, SOON, || async { scene.logins.held() }).await;
    scene.logins.set(AuthMood::Well);
    settle("ok".to_owned(), Duration::from_secs(15), || async { call(&first, "up:t").await.code() }).await;
    assert_eq!(scene.logins.reuses(), 0);
}

/// The answer is lost after the login service has rotated the token: the gap that rotation leaves. The person logs in again.
#[tokio::test]
async fn a_lost_answer_ends_the_login_once() {
    let scene = Scene::start().await;
    let agent = scene.agent("ana").await;
    calls_pass(&scene, &agent).await;
    scene.logins.set(AuthMood::Lost);
    scene.logins.end_tokens();
    settle(true, SOON, || async {
        call(&agent, "up:t").await;
        !scene.logins.asked("refresh_token").is_empty()
    })
    .await;
    scene.logins.set(AuthMood::Well);
    settle("upstream_login_required".to_owned(), Duration::from_secs(15), || async {
        call(&agent, "up:t").await.code()
    })
    .await;
    let reuses = scene.logins.reuses();
    assert!((1..=2).contains(&reuses), "the stored token is tried once for each login: {reuses}");
    scene.logins.change(|rules| rules.subject = "ana".to_owned());
    super::connect(&scene.replicas.stage.gateway, &agent, false).await.expect(200);
    calls_pass(&scene, &agent).await;
}
