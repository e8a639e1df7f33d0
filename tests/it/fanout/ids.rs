//! Ids of events: a client that comes back, wherever, is told what it missed and nothing else.

use super::{ACT, Scene, session};
use crate::support::{Ear, Mcp};

#[tokio::test]
async fn who_comes_back_is_told_what_it_missed() {
    let mut scene = Scene::set().await;
    scene.add("zoo", &["reader"]).await;
    let agent = scene.tenant.agent().await;
    let here = session(&agent).await;
    let there = Mcp::in_session(&scene.there(&agent), here.session_id()).at(crate::support::DIRECT);
    let first = Ear::of(&here, None).await;
    let old = first.id().await;
    assert!(first.messages().is_empty());

    let back = Ear::of(&there, Some(&old)).await;
    scene.act("zoo", "disable").await;
    first.hears(1, ACT).await;
    back.hears(1, ACT).await;
    let new = first.last_id().unwrap();
    assert_ne!(new, old);
    assert_eq!(back.last_id().as_ref(), Some(&new), "equal lists, equal ids, on every replica");

    for other in [old.as_str(), "nonsense", "1.2.3"] {
        Ear::of(&there, Some(other)).await.hears(1, ACT).await;
    }
    let silent = Ear::of(&there, Some(&new)).await;
    scene.act("zoo", "enable").await;
    // the only notice is the one of this change
    silent.hears(1, ACT).await;
    assert_eq!(silent.last_id(), Some(old), "what is seen is what was seen at first");
}

/// Older clients do not expect an event without a message.
#[tokio::test]
async fn only_those_are_primed_who_expect_it() {
    let mut scene = Scene::set().await;
    scene.add("zoo", &["reader"]).await;
    let agent = scene.tenant.agent().await;
    let old = Mcp::direct(&agent).shake_hands("2025-06-18").await;
    let ear = Ear::of(&old, None).await;
    assert_eq!(ear.last_id(), None);
    scene.act("zoo", "disable").await;
    ear.hears(1, ACT).await;
    assert!(ear.last_id().is_some(), "what it is told carries one");
    // there is nothing to resume on /mcp
    let search = Ear::of(&Mcp::session(&agent).await, None).await;
    assert_eq!(search.last_id(), None);
}
