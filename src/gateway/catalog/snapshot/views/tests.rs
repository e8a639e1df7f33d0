use super::*;
use crate::domain::settings::{Defaults, Settings};
use crate::gateway::catalog::snapshot::tests::{build_with_tools, server};

fn settings(patterns: &[&str]) -> Effective {
    let own = Settings {
        allowed_tools: Some(patterns.iter().map(|pattern| (*pattern).to_owned()).collect()),
        ..Settings::default()
    };
    Effective::resolve(&own, &Settings::default(), &Defaults::example())
}

fn catalogue(tools: usize) -> Arc<Catalog> {
    let definition = |n: usize| {
        let name = format!("tool_{n:05}");
        let text = format!(
            r#"{{"name":"{name}","inputSchema":{{"type":"object"}},"annotations":{{"readOnlyHint":true}}}}"#
        );
        (name, text)
    };
    Arc::new(build_with_tools(1, vec![server(1, &[])], (0..tools).map(definition), &Catalog::empty()))
}

#[tokio::test]
async fn a_view_is_made_once_for_all_who_see_the_same() {
    let catalogue = catalogue(3);
    let (one, same) = (settings(&["s1:*"]), settings(&["s1:*"]));
    let view = catalogue.view_soon(&one).await;
    assert!(Arc::ptr_eq(&view, &catalogue.view_soon(&same).await));
    assert!(Arc::ptr_eq(&view, &catalogue.view(&same)));
    let direct = catalogue.direct_view_soon(&one).await;
    assert!(Arc::ptr_eq(&direct, &catalogue.direct_view(&same)));
    let none = catalogue.direct_view(&settings(&["s2:*"]));
    assert_ne!(none.print, direct.print);
    // other words for the same tools are another view, of an equal list
    assert_eq!(catalogue.direct_view(&settings(&["s1:*", "s1:tool_*"])).print, direct.print);
}

#[test]
fn making_one_leaves_the_thread_to_others_and_is_done_in_turns() {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    runtime.block_on(leaves_the_thread_and_takes_turns());
}

/// Runs the test body on a runtime with one blocking thread.
async fn leaves_the_thread_and_takes_turns() {
    let catalogue = catalogue(3);
    let turn = Arc::clone(&catalogue.views.turn).acquire_owned().await.unwrap();
    let (one, other) = (settings(&["*_00001"]), settings(&["*_00002"]));
    let mut waits = std::pin::pin!(catalogue.view_soon(&one));
    assert!(futures_util::poll!(&mut waits).is_pending(), "another one is being made");
    // a blocking thread makes the view itself, and the request that waits finds it
    let made = catalogue.view(&one);
    drop(turn);
    assert!(Arc::ptr_eq(&made, &waits.await));
    {
        let (release, held) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || held.recv().is_err());
        let mut given_up = std::pin::pin!(catalogue.direct_view_soon(&other));
        assert!(futures_util::poll!(&mut given_up).is_pending(), "not on this thread");
        drop(release);
        assert!(busy.await.unwrap());
    }
    // the permit stays with the work until that ends, though nobody waits for it
    let _turn = catalogue.views.turn.acquire().await.unwrap();
    assert!(catalogue.views.known.lock().get(&ViewKey::of(&other)).is_some());
}

#[test]
fn the_least_used_gives_way() {
    let catalogue = catalogue(1);
    let name = |n: usize| settings(&[&format!("s1:{n}")]);
    let first = catalogue.view(&name(0));
    for n in 1..=VIEWS_MAX {
        catalogue.view(&name(n));
        assert!(Arc::ptr_eq(&first, &catalogue.view(&name(0))), "{n}");
    }
    assert_eq!(catalogue.views.known.lock().views.len(), VIEWS_MAX);
    assert!(catalogue.views.known.lock().get(&ViewKey::of(&name(1))).is_none());
}
