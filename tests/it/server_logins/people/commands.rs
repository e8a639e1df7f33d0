//! `mcpproxy upstream connect`, as a person at a terminal uses it.

use serde_json::json;

use super::{GATEWAY, Scene, call, calls_pass, log_in_there};
use crate::support::{Following, Visitor, cli};

/// Opens the address that the program prints, as a browser does. Returns the last page.
async fn open(scene: &Scene, program: &mut Following) -> String {
    let url = loop {
        let line = program.note().await.expect("the address");
        if let Some(url) = line.trim().strip_prefix(&format!("{}/", scene.logins.url)) {
            break format!("{}/{url}", scene.logins.url);
        }
    };
    let back = log_in_there(&url).await;
    let browser = Visitor::by(&scene.replicas.others[1], GATEWAY);
    let to_program = browser.get(&back).await.header("location").to_owned();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    client.get(to_program).send().await.unwrap().text().await.unwrap()
}

#[tokio::test]
async fn a_key_holder_logs_in_from_a_terminal() {
    let scene = Scene::start().await;
    let agent = scene.tenant.agent().await;
    scene.logins.change(|rules| rules.subject = "ana".to_owned());
    let mut program = Following::start(&agent, &["upstream", "connect", "up"]);
    let page = open(&scene, &mut program).await;
    assert!(page.contains("You are logged in at the server"), "{page}");
    program.says("logged in at server up; whoever uses this API key calls the server with this login").await;
    assert_eq!(program.ended().await.code(), Some(0));
    calls_pass(&scene, &agent).await;
    let shown = cli(&scene.admin, &["upstream", "connections", "up"]).await.ok();
    assert!(shown.out.contains("connected") && shown.out.contains("yes"), "{}", shown.out);
    // declined there, it says so here
    scene.logins.change(|rules| rules.answer = json!({"code": null, "error": "access_denied"}));
    let other = scene.tenant.agent().await;
    let mut program = Following::start(&other, &["upstream", "connect", "up"]);
    let page = open(&scene, &mut program).await;
    assert!(page.contains("You are not logged in"), "{page}");
    program.says("the login service did not log you in").await;
    assert_eq!(program.ended().await.code(), Some(5));
    // a call without a login exits with 5, and says what to do
    let run = cli(&other, &["call", "tool-write", "up:t"]).await;
    run.failed(5, "run mcpproxy upstream connect up");
    let id =
        super::connections(&scene.admin).await.into_iter().find(|row| row["principal_id"] == json!(agent.id));
    let id = id.unwrap()["id"].as_str().unwrap().to_owned();
    cli(&scene.admin, &["upstream", "disconnect", "up", &id]).await.ok();
    assert_eq!(call(&agent, "up:t").await.code(), "upstream_login_required");
}
