//! Calls that are held open for clients that do not come back.

use super::held::{ANA, SOON, Three, WAY, answer, text};
use super::{Way, assert_invalid, client};
use crate::support::settle;

/// Most calls of one key that are held on a replica.
const HELD_PER_KEY: usize = 32;

#[tokio::test]
async fn so_many_calls_of_a_key_are_held_and_no_more() {
    let three = Three::start(true).await;
    // two servers: half of the places of one may wait for people, which are as many
    three.tenant.add("two", &three.upstream).await;
    let two = Way { tool: "two:asker", ..WAY };
    let (agent, other) = (three.tenant.agent().await, three.tenant.agent().await);
    for at in 0..HELD_PER_KEY {
        [WAY, two][at % 2].begin(client(&agent)).await;
    }
    let said = text(&WAY.go(client(&agent), "").await);
    assert!(said.contains("-32603"), "{said}");
    WAY.begin(client(&other)).await;
    assert_eq!(three.calls(), HELD_PER_KEY + 2);
}

#[tokio::test]
async fn the_result_of_a_call_that_ends_meanwhile_waits_for_its_client() {
    let three = Three::start(false).await;
    let agent = three.tenant.agent().await;
    let impatient = Way { tool: "up:impatient", ..WAY };
    for (at, api) in three.everywhere(&agent).into_iter().enumerate() {
        three.gate.send_replace(false);
        let state = impatient.begin(client(&agent)).await;
        three.gate.send_replace(true);
        let path = format!("/api/v1/activity?key={}&type=question&status=cancelled", agent.id);
        settle(at + 1, SOON, || async { three.tenant.platform.items(&path).await.len() }).await;
        assert_eq!(text(&answer(impatient, client(&api), ANA, &state).await), "nobody answered");
        assert_invalid(&answer(impatient, client(&api), ANA, &state).await, "it was given");
    }
    assert_eq!((three.calls(), three.upstream.replies().len()), (3, 0));
}
