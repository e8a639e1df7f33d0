//! Secrets of a login: in no row, record, log or answer.

use serde_json::json;

use super::{Scene, begin, call, calls_pass, claim, log_in_there, return_to};
use crate::support::upstream::Say;
use crate::support::{Tool, Upstream};

#[tokio::test]
async fn secrets_of_a_login_are_written_nowhere() {
    let echo = Tool::writes("t").says(Say::Headers);
    let upstream = Upstream::modern(vec![echo]).await;
    let scene = Scene::with(&[], upstream).await;
    let agent = scene.tenant.agent().await;
    scene.logins.change(|rules| rules.subject = "ana".to_owned());
    let url = begin(&agent, false).await;
    let state = url.split_once("state=").unwrap().1.split('&').next().unwrap().to_owned();
    let back = log_in_there(&url).await;
    let code = return_to(&scene.replicas.others[0], &back).await;
    claim(&agent, &code).await.expect(200);
    calls_pass(&scene, &agent).await;
    // renewed while nobody looks, and called once more
    scene.logins.end_tokens();
    calls_pass(&scene, &agent).await;
    call(&agent, "up:t").await.ok();
    let rows: String = scene.replicas.stage.database.rows().await.into_iter().map(|(_, row)| row).collect();
    let gateways = [&scene.replicas.stage.gateway, &scene.replicas.others[0], &scene.replicas.others[1]];
    let logs: String = gateways.iter().map(|gateway| gateway.log()).collect();
    let verifier = scene.logins.asked("authorization_code").pop().unwrap().form["code_verifier"].clone();
    let mut secrets = scene.logins.secrets();
    secrets.extend([state, code, verifier]);
    assert!(secrets.len() > 6);
    for secret in secrets {
        assert!(!rows.contains(&secret) && !logs.contains(&secret), "a secret was written: {secret:.12}");
    }
    let records = scene.tenant.records("type=admin&tool=servers.connected", 2).await;
    assert_eq!(records[0]["server"], json!("up"));
}
