//! The server dies and its standby takes its place, under the same name.

use std::time::Duration;

use super::Scene;
use super::writers::Writers;
use crate::support::OwnPostgres;

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_takes_over_under_load_has_everything() {
    let mut primary = OwnPostgres::start().await;
    let mut scene = Scene::on(primary.database(), &[]).await;
    let standby = primary.standby().await;
    let writers = Writers::start(&scene, 4);
    writers.go_on(&scene, 20).await;
    primary.kill();
    assert_eq!(scene.read().await, "ok");
    standby.promote().await;
    scene.line.lead_to(standby.database().port());
    writers.go_on(&scene, 20).await;
    scene.becomes(200, "ready", Duration::from_secs(8)).await;
    writers.end().await;
    // what was committed before is there, and what was under way is there once
    scene.stage.database = standby.database();
    scene.all_is_accounted_for().await;
}
