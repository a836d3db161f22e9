//! What the application asks for.

use super::*;

#[test]
fn a_request_is_asked_again_after_a_reconnect_and_answered_once() {
    let mut state = ready();
    let id = state.history(ab(), HistoryRange::Newest, Some(20)).unwrap();
    assert_eq!(queries(&frames(&mut state)).len(), 1);
    state.disconnected();
    greet(&mut state);
    let asked = queries(&frames(&mut state));
    assert_eq!(asked.len(), 1);
    let reference = asked[0].reference.clone().unwrap();
    state.frame(history(reference.clone(), vec![], 0, None));
    state.frame(history(reference, vec![], 0, None));
    assert!(
        matches!(state.next_query_result(), Some((answered, Ok(QueryResult::History(_)))) if answered == id)
    );
    assert_eq!(state.next_query_result(), None);
}

#[test]
fn what_is_watched_is_watched_again() {
    let mut state = ready();
    state.watch(vec![user("bob")]).unwrap();
    frames(&mut state);
    state.disconnected();
    greet(&mut state);
    assert!(matches!(&frames(&mut state)[..], [ClientFrame::Watch(watch)] if watch.users == [user("bob")]));
}

#[test]
fn requests_are_bounded_and_forgetting_makes_room() {
    let mut state = ready();
    let ids: Vec<_> = (0..REQUESTS_MAX).map(|_| state.status(ab()).unwrap()).collect();
    assert_eq!(state.inbox(None, None), Err(Refusal::Busy));
    state.forget(ids[0]);
    assert!(state.inbox(None, None).is_ok());
}
