//! The API of section 4 over HTTP: the same operations as the frames, for back ends and page loads.

use axum::{Json, extract::State, http::StatusCode};
use bluetick_chat::{ReceiptRequest, SendRequest};
use bluetick_protocol::{
    ConversationId, ErrorCode, HistoryPage, HistoryQuery, InboxPage, InboxQuery, Profile, Ref, Send, Sent,
    Seq, StatusAnswer, UserCard, UserId, check_send, limits,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AppState,
    error::{ApiError, ApiResult},
    request::{Bearer, JsonBody, Params, PathId},
};

/// Sends a message
///
/// The response is sent when the message is durable. Repeating a request with the same
/// `client_msg_id` is safe: the response is the original with `duplicate: true`. The same id with
/// another `body`, `attachment` or `meta` is refused with 409 and `client_msg_id_conflict`. Without
/// `seen_seq` nothing is marked as read.
#[utoipa::path(
    post, path = "/v1/messages", tag = "messages", operation_id = "sendMessage",
    request_body = Send,
    responses((status = 200, description = "Stored", body = Sent)),
)]
pub async fn send(
    Bearer(who): Bearer,
    State(state): State<AppState>,
    JsonBody(send): JsonBody<Send>,
) -> ApiResult<Sent> {
    if matches!(&send.reference, Some(Ref::Text(text)) if text.len() > limits::REF_MAX_BYTES) {
        return Err(ApiError::new(ErrorCode::BadRequest, "\"ref\" may have at most 64 characters"));
    }
    let mut send = check_send(send)?;
    // A back end that writes in somebody's name does not know what they have seen (R10).
    send.seen_seq.get_or_insert(0);
    // In its own task: a client that disconnects must not stop a stored message on its way to the
    // receiver.
    let app = state.app.clone();
    let request = SendRequest { user: who.user, session: None, sends: vec![send] };
    let answers = tokio::spawn(async move { app.send(request).await }).await;
    match answers.ok().and_then(|mut answers| answers.pop()) {
        Some(answer) => Ok(Json(answer?)),
        None => Err(ApiError::new(ErrorCode::Internal, "the server met an error it did not expect")),
    }
}

#[derive(Deserialize)]
pub struct InboxParams {
    limit: Option<u32>,
    before: Option<String>,
}

/// Lists conversations, newest first
///
/// A page has everything a conversation list shows, unread counts and ticks included. A page has at
/// most 256 KiB, or one entry. `next` is null at the end.
#[utoipa::path(
    get, path = "/v1/inbox", tag = "conversations", operation_id = "listInbox",
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Entries in a page; 20 by default"),
        ("before" = Option<String>, Query, description = "The opaque `next` of the page before"),
    ),
    responses((status = 200, description = "A page of the inbox", body = InboxPage)),
)]
pub async fn inbox(
    Bearer(who): Bearer,
    State(state): State<AppState>,
    Params(params): Params<InboxParams>,
) -> ApiResult<InboxPage> {
    let query = InboxQuery { reference: None, limit: params.limit, before: params.before };
    Ok(Json(state.app.inbox(who.user, query).await?))
}

#[derive(Deserialize)]
pub struct HistoryParams {
    after_seq: Option<Seq>,
    before_seq: Option<Seq>,
    limit: Option<u32>,
}

/// Reads a conversation's messages
///
/// With `after_seq` the page after it, with `before_seq` the page before it, with neither the
/// newest page. A page has at most 256 KiB, or one message, and may be shorter than `limit`:
/// continue until `next` is null. In an empty page, `to_seq` is `from_seq` − 1.
#[utoipa::path(
    get, path = "/v1/conversations/{id}/messages", tag = "conversations", operation_id = "listMessages",
    params(
        ("id" = String, Path, description = "The two user ids in byte order joined by `~`: `alice~bob`"),
        ("after_seq" = Option<u64>, Query, description = "Messages after this position, oldest first"),
        ("before_seq" = Option<u64>, Query, description = "The page that ends before this position"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 200, description = "Messages in a page; 50 by default"),
    ),
    responses((status = 200, description = "A page of messages in the order of `seq`", body = HistoryPage)),
)]
pub async fn history(
    Bearer(who): Bearer,
    State(state): State<AppState>,
    PathId(conversation_id): PathId<ConversationId>,
    Params(params): Params<HistoryParams>,
) -> ApiResult<HistoryPage> {
    let HistoryParams { after_seq, before_seq, limit } = params;
    let query = HistoryQuery { reference: None, conversation_id, after_seq, before_seq, limit };
    Ok(Json(state.app.history(who.user, query).await?))
}

/// Tells how far both members have received and read
#[utoipa::path(
    get, path = "/v1/conversations/{id}/status", tag = "conversations", operation_id = "getStatus",
    params(("id" = String, Path, description = "The conversation")),
    responses((status = 200, description = "Both members' boundaries", body = StatusAnswer)),
)]
pub async fn status(
    Bearer(who): Bearer,
    State(state): State<AppState>,
    PathId(conversation): PathId<ConversationId>,
) -> ApiResult<StatusAnswer> {
    Ok(Json(state.app.status(who.user, conversation).await?))
}

/// Read up to here
#[derive(Deserialize, ToSchema)]
pub struct ReadBody {
    #[schema(value_type = u64, example = 3)]
    seq: Seq,
}

/// Marks a conversation read up to a position
///
/// Boundaries only grow: an earlier position changes nothing, one beyond the end means the end.
#[utoipa::path(
    post, path = "/v1/conversations/{id}/read", tag = "conversations", operation_id = "markRead",
    params(("id" = String, Path, description = "The conversation")),
    request_body = ReadBody,
    responses((status = 204, description = "Read")),
)]
pub async fn read(
    Bearer(who): Bearer,
    State(state): State<AppState>,
    PathId(conversation_id): PathId<ConversationId>,
    JsonBody(ReadBody { seq }): JsonBody<ReadBody>,
) -> Result<StatusCode, ApiError> {
    state
        .app
        .read(ReceiptRequest { user: who.user, session: None, conversation_id, seq, again: false })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Shows one's own profile
#[utoipa::path(
    get, path = "/v1/me", tag = "users", operation_id = "getMe",
    responses((status = 200, description = "The profile", body = UserCard)),
)]
pub async fn me(Bearer(who): Bearer, State(state): State<AppState>) -> ApiResult<UserCard> {
    Ok(Json(state.app.profile(who.user).await?))
}

/// Sets one's own name and avatar
///
/// A field that is left out is removed. Refused with `profile_managed` if names come from tokens or
/// the operator.
#[utoipa::path(
    put, path = "/v1/me", tag = "users", operation_id = "putMe",
    request_body = Profile,
    responses((status = 200, description = "The profile as it is now", body = UserCard)),
)]
pub async fn put_me(
    Bearer(who): Bearer,
    State(state): State<AppState>,
    JsonBody(profile): JsonBody<Profile>,
) -> ApiResult<UserCard> {
    Ok(Json(state.app.put_profile(who.user, profile).await?))
}

/// Shows the profile of somebody who has written to one and does not block one
#[utoipa::path(
    get, path = "/v1/users/{id}", tag = "users", operation_id = "getUser",
    params(("id" = String, Path, description = "The user")),
    responses((status = 200, description = "The profile", body = UserCard)),
)]
pub async fn user(
    Bearer(who): Bearer,
    State(state): State<AppState>,
    PathId(other): PathId<UserId>,
) -> ApiResult<UserCard> {
    Ok(Json(state.app.user_card(who.user, other).await?))
}

/// Where a list goes on: behind its `next` of the page before.
#[derive(Deserialize)]
pub struct ListParams<T> {
    pub after: Option<T>,
}

/// Entries of a list in one page.
const LIST_PAGE: usize = 500;
/// What an entry has beside its key: names, a number, and marks.
const BESIDE_THE_KEY_BYTES: usize = 64;
const _: () = assert!(
    LIST_PAGE * (2 * limits::USER_ID_MAX_BYTES + 1 + BESIDE_THE_KEY_BYTES) <= limits::PAGE_ENCODED_MAX_BYTES
);

/// A page of an ordered list, and the key of its last entry if there are more.
pub fn page_of<T, K: Ord + Clone>(
    mut list: Vec<T>,
    after: Option<K>,
    key: impl Fn(&T) -> &K,
) -> (Vec<T>, Option<K>) {
    let from = list.partition_point(|entry| after.as_ref().is_some_and(|after| key(entry) <= after));
    let mut page = list.split_off(from);
    let more = page.len() > LIST_PAGE;
    page.truncate(LIST_PAGE);
    let next = page.last().filter(|_| more).map(|entry| key(entry).clone());
    (page, next)
}

#[derive(Serialize, ToSchema)]
pub struct Blocks {
    pub blocks: Vec<UserId>,
    /// Where the next page begins, as `after`; null at the end
    pub next: Option<UserId>,
}

/// Lists whom one blocks
#[utoipa::path(
    get, path = "/v1/blocks", tag = "users", operation_id = "listBlocks",
    params(("after" = Option<String>, Query, description = "The `next` of the page before")),
    responses((status = 200, description = "The blocked users, in order", body = Blocks)),
)]
pub async fn blocks(
    Bearer(who): Bearer,
    State(state): State<AppState>,
    Params(params): Params<ListParams<UserId>>,
) -> ApiResult<Blocks> {
    let (blocks, next) = page_of(state.app.blocks(who.user).await?, params.after, |user| user);
    Ok(Json(Blocks { blocks, next }))
}

/// Blocks a user
///
/// The blocked user is not told: what they send is stored, and never reaches the one who blocks.
#[utoipa::path(
    put, path = "/v1/blocks/{user}", tag = "users", operation_id = "putBlock",
    params(("user" = String, Path, description = "Whom to block")),
    responses((status = 204, description = "Blocked")),
)]
pub async fn block(
    Bearer(who): Bearer,
    State(state): State<AppState>,
    PathId(other): PathId<UserId>,
) -> Result<StatusCode, ApiError> {
    state.app.set_block(who.user, other, true).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Unblocks a user
#[utoipa::path(
    delete, path = "/v1/blocks/{user}", tag = "users", operation_id = "deleteBlock",
    params(("user" = String, Path, description = "Whom to unblock")),
    responses((status = 204, description = "Not blocked")),
)]
pub async fn unblock(
    Bearer(who): Bearer,
    State(state): State<AppState>,
    PathId(other): PathId<UserId>,
) -> Result<StatusCode, ApiError> {
    state.app.set_block(who.user, other, false).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_in_pages_that_lack_nothing() {
        let all: Vec<u32> = (0..2 * LIST_PAGE as u32 + 7).collect();
        let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let (page, next) = page_of(all.clone(), after, |n| n);
            assert!(page.len() <= LIST_PAGE);
            found.extend(page);
            pages += 1;
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((found, pages), (all.clone(), 3));
        assert_eq!(page_of(all, Some(u32::MAX), |n| n), (vec![], None));
        assert_eq!(page_of((0..LIST_PAGE as u32).collect(), None, |n| n).1, None, "no empty page at the end");
    }
}
