//! Many changes at once: a few notices, and everybody has the same in the end.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{ACT, Scene, ears, modern, names};
use crate::support::{Ear, settle};

/// Changes made as fast as they are answered.
const CHANGES: usize = 200;

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_is_a_handful_of_notices() {
    let mut scene = Scene::set().await;
    for server in ["a", "b", "c", "d"] {
        scene.add(server, &["one", "two"]).await;
    }
    let agent = scene.tenant.agent().await;
    let (here, there) = (ears(&agent).await, ears(&scene.there(&agent)).await);
    let listening: Vec<&Ear> = here.iter().chain(&there).collect();

    let began = Instant::now();
    let platform = &scene.tenant.platform;
    let change = async |server: &str, replica: &crate::support::Gateway| {
        let api = replica.ask_as(platform);
        for _ in 0..CHANGES / 8 {
            for act in ["disable", "enable"] {
                api.post(&format!("/api/v1/servers/{server}/{act}"), &json!({})).await.expect(200);
            }
        }
    };
    let [first, second] = [&scene.stage.gateway, &scene.other];
    tokio::join!(change("a", first), change("b", second), change("c", first), change("d", second));
    scene.act("d", "disable").await;
    let took = began.elapsed();

    let end = ["a:one", "a:two", "b:one", "b:two", "c:one", "c:two", "read_cache"];
    for replica in [first, second] {
        let client = modern(&replica.ask_as(&agent));
        settle(end.map(str::to_owned).to_vec(), ACT, || async {
            let mut names = names(&client).await;
            names.sort();
            names
        })
        .await;
    }
    let last = Instant::now();
    // the last change is told within a second: what comes later is not of it
    settle(true, ACT, || async { listening.iter().all(|ear| !ear.notices().is_empty()) }).await;
    let windows = (took.as_millis() / 200) as usize + 3;
    for ear in listening {
        settle(true, ACT * 2, || async { last.elapsed() > Duration::from_millis(600) }).await;
        let heard = ear.notices().len();
        assert!((1..=windows).contains(&heard), "{heard} notices in {took:?}");
    }
}
