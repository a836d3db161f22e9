//! Round trips: every kind of frame decodes to what was encoded, whatever its fields hold.

#![allow(clippy::unwrap_used)]

use bluetick_fuzz::{for_every_variant, strategies_of};
use bluetick_protocol::*;
use proptest::{
    collection::vec,
    option,
    prelude::{any, prop_oneof},
    sample::select,
    strategy::Strategy,
};

fn user() -> impl Strategy<Value = UserId> {
    "[A-Za-z0-9._@+|:=-]{1,128}".prop_map(|text| UserId::new(&text).unwrap())
}

fn device() -> impl Strategy<Value = DeviceId> {
    "[A-Za-z0-9._@-]{1,64}".prop_map(|text| DeviceId::new(&text).unwrap())
}

fn client_msg_id() -> impl Strategy<Value = ClientMsgId> {
    "[!-~]{1,64}".prop_map(|text| ClientMsgId::new(&text).unwrap())
}

fn conversation() -> impl Strategy<Value = ConversationId> {
    (user(), user()).prop_filter_map("one user", |(a, b)| ConversationId::between(&a, &b))
}

fn message_id() -> impl Strategy<Value = MessageId> {
    (0..=MessageId::MAX.0).prop_map(MessageId)
}

/// Text with every kind of character: controls, quotes, characters beyond the first plane.
fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..40).prop_map(String::from_iter)
}

fn reference() -> impl Strategy<Value = Ref> {
    prop_oneof![any::<i64>().prop_map(Ref::Number), "\\PC{0,16}".prop_map(Ref::Text)]
}

/// An object as clients write them: with escapes, nesting and white space.
fn json() -> impl Strategy<Value = Json> {
    (text(), any::<i64>(), select(&["{}", "[1, [2]]", "null", "\"\\u0000\\ud83d\\ude00\"", "-0.5e-9"][..]))
        .prop_map(|(key, n, value)| {
            let key = serde_json::to_string(&key).unwrap();
            Json::from_text(&format!("{{{key}: {n},\n\"x\":{value} }}")).unwrap()
        })
}

fn receipt() -> impl Strategy<Value = Receipt> {
    (option::of(reference()), conversation(), any::<u64>())
        .prop_map(|(reference, conversation_id, seq)| Receipt { reference, conversation_id, seq })
}

fn in_conversation() -> impl Strategy<Value = InConversation> {
    (option::of(reference()), conversation())
        .prop_map(|(reference, conversation_id)| InConversation { reference, conversation_id })
}

fn send() -> impl Strategy<Value = Send> {
    let whom =
        prop_oneof![user().prop_map(|to| (Some(to), None)), conversation().prop_map(|id| (None, Some(id)))];
    let extras = (option::of(json()), option::of(json()), option::of(any::<u64>()));
    (option::of(reference()), client_msg_id(), whom, text(), extras).prop_map(
        |(reference, client_msg_id, (to, conversation_id), body, (attachment, meta, seen_seq))| Send {
            reference,
            client_msg_id,
            to,
            conversation_id,
            body,
            attachment,
            meta,
            seen_seq,
        },
    )
}

#[test]
fn every_client_frame_survives_the_way_to_text_and_back() {
    let frames = strategies_of!(ClientFrame {
        Hello => {
            let session = any::<u128>().prop_map(SessionId);
            (option::of(reference()), text(), device(), option::of(message_id()), option::of(session)).prop_map(
                |(reference, token, device, cursor, resumes)| {
                    ClientFrame::Hello(Hello { reference, token, device, cursor, resumes })
                },
            )
        },
        Auth => (option::of(reference()), text())
            .prop_map(|(reference, token)| ClientFrame::Auth(Auth { reference, token })),
        Send => send().prop_map(ClientFrame::Send),
        Ack => receipt().prop_map(ClientFrame::Ack),
        Read => receipt().prop_map(ClientFrame::Read),
        Typing => in_conversation().prop_map(ClientFrame::Typing),
        Inbox => (option::of(reference()), option::of(any::<u32>()), option::of(text())).prop_map(
            |(reference, limit, before)| ClientFrame::Inbox(InboxQuery { reference, limit, before })
        ),
        History => (
            option::of(reference()),
            conversation(),
            option::of(any::<u64>()),
            option::of(any::<u64>()),
            option::of(any::<u32>()),
        )
            .prop_map(|(reference, conversation_id, after_seq, before_seq, limit)| {
                ClientFrame::History(HistoryQuery { reference, conversation_id, after_seq, before_seq, limit })
            }),
        Status => in_conversation().prop_map(ClientFrame::Status),
        Watch => (option::of(reference()), vec(user(), 0..8))
            .prop_map(|(reference, users)| ClientFrame::Watch(Watch { reference, users })),
        Ping => option::of(reference()).prop_map(|reference| ClientFrame::Ping(Ping { reference })),
    });
    for_every_variant(frames, |frame| {
        assert_eq!(decode(&frame.to_text()), Ok(frame));
    });
}

fn message() -> impl Strategy<Value = MessageFrame> {
    let place = (conversation(), any::<u64>(), message_id(), client_msg_id());
    let content = (text(), any::<u64>(), option::of(json()), option::of(json()));
    (place, user(), user(), content).prop_map(
        |(
            (conversation_id, seq, message_id, client_msg_id),
            sender,
            receiver,
            (body, ts, attachment, meta),
        )| {
            MessageFrame {
                conversation_id,
                seq,
                message_id,
                client_msg_id,
                sender,
                receiver,
                body,
                ts,
                attachment,
                meta,
            }
        },
    )
}

fn boundaries() -> impl Strategy<Value = Boundaries> {
    (any::<u64>(), any::<u64>())
        .prop_map(|(last_delivered_seq, last_read_seq)| Boundaries { last_delivered_seq, last_read_seq })
}

fn inbox_entry() -> impl Strategy<Value = InboxEntry> {
    let peer = (user(), option::of(text()), option::of(text()))
        .prop_map(|(user_id, name, avatar_url)| UserCard { user_id, name, avatar_url });
    let last = (text(), any::<u64>(), any::<u64>(), user());
    (conversation(), peer, last, any::<u64>(), boundaries()).prop_map(
        |(conversation_id, peer, (preview, ts, last_seq, last_sender), unread_count, peer_status)| {
            InboxEntry {
                conversation_id,
                peer,
                last_message_preview: preview,
                last_message_ts: ts,
                last_seq,
                last_sender,
                unread_count,
                peer_status,
            }
        },
    )
}

fn error() -> impl Strategy<Value = WireError> {
    (select(ErrorCode::ALL), text(), option::of(any::<u64>()))
        .prop_map(|(code, message, retry_after_ms)| WireError { code, message, retry_after_ms })
}

#[test]
fn every_server_frame_survives_the_way_to_text_and_back() {
    let frames = strategies_of!(ServerFrame {
        Welcome => (
            option::of(reference()), user(), device(), any::<u128>(), any::<u64>(), any::<u64>(), any::<usize>()
        ).prop_map(|(reference, user_id, device, session, server_time, heartbeat_secs, max_body_bytes)| {
            let session_id = SessionId(session);
            ServerFrame::Welcome(Welcome {
                reference, user_id, device, session_id, server_time, heartbeat_secs, max_body_bytes,
            })
        }),
        Sent => (
            option::of(reference()), client_msg_id(), conversation(), any::<u64>(), message_id(), any::<u64>(),
            any::<bool>(),
        ).prop_map(|(reference, client_msg_id, conversation_id, seq, message_id, ts, duplicate)| {
            ServerFrame::Sent(Sent { reference, client_msg_id, conversation_id, seq, message_id, ts, duplicate })
        }),
        Message => message().prop_map(ServerFrame::Message),
        CaughtUp => {
            let head = (conversation(), any::<u64>())
                .prop_map(|(conversation_id, last_seq)| Head { conversation_id, last_seq });
            (message_id(), vec(head, 0..4))
                .prop_map(|(cursor, heads)| ServerFrame::CaughtUp(CaughtUp { cursor, heads }))
        },
        Reset => text().prop_map(|reason| ServerFrame::Reset(Reset { reason })),
        Ticks => (conversation(), user(), any::<u64>(), any::<u64>()).prop_map(
            |(conversation_id, user_id, last_delivered_seq, last_read_seq)| {
                ServerFrame::Ticks(Ticks { conversation_id, user_id, last_delivered_seq, last_read_seq })
            }
        ),
        Typing => (conversation(), user())
            .prop_map(|(conversation_id, user_id)| ServerFrame::Typing(Typing { conversation_id, user_id })),
        Presence => (user(), any::<bool>(), option::of(any::<u64>())).prop_map(|(user_id, online, last_seen)| {
            ServerFrame::Presence(Presence { user_id, online, last_seen })
        }),
        Inbox => (option::of(reference()), vec(inbox_entry(), 0..3), option::of(text())).prop_map(
            |(reference, conversations, next)| ServerFrame::Inbox(InboxPage { reference, conversations, next })
        ),
        History => (
            option::of(reference()), conversation(), vec(message(), 0..3), any::<u64>(), any::<u64>(),
            option::of(any::<u64>()),
        ).prop_map(|(reference, conversation_id, messages, from_seq, to_seq, next)| {
            ServerFrame::History(HistoryPage { reference, conversation_id, messages, from_seq, to_seq, next })
        }),
        Status => (
            option::of(reference()), conversation(), any::<u64>(), any::<u64>(), boundaries(), boundaries()
        ).prop_map(|(reference, conversation_id, last_seq, unread_count, own, peer)| {
            ServerFrame::Status(StatusAnswer { reference, conversation_id, last_seq, unread_count, own, peer })
        }),
        Done => reference().prop_map(|reference| ServerFrame::Done(Done { reference })),
        Error => (option::of(reference()), error())
            .prop_map(|(reference, error)| ServerFrame::Error(ErrorFrame { reference, error })),
        Bye => (select(ErrorCode::ALL), text(), any::<u64>()).prop_map(|(code, reason, reconnect_after_ms)| {
            ServerFrame::Bye(Bye { code, reason, reconnect_after_ms })
        }),
        Pong => (option::of(reference()), any::<u64>())
            .prop_map(|(reference, server_time)| ServerFrame::Pong(Pong { reference, server_time })),
    });
    for_every_variant(frames, |frame| {
        assert_eq!(bluetick_client::decode(&frame.to_text()).unwrap(), frame);
    });
}
