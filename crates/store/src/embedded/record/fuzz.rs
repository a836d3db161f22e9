//! Fuzz targets: arbitrary bytes as a record of the log and as rows of the engine. What decodes
//! must encode and decode to the same value; a length beyond the input is refused before memory is
//! reserved for it.

use std::sync::Arc;

use bluetick_fuzz::{fuzz, golden};
use bluetick_protocol::{
    ClientMsgId, DeviceId, Json, MessageId, Mute, PushContent, PushKeys, PushRegistration, PushSubscription,
    PushTarget, S3Ref,
};

use super::*;
use crate::{
    AttachmentRow, ColdRun, DeviceRow, Message, UploadState,
    embedded::{
        attachments,
        cold::RunRow,
        conversation::{ConversationState, LastMessage, Member},
        devices, mutes, not_before,
        push_outbox::PushOutboxRow,
        rows::RowSpace,
        user_row::UserRow,
    },
};

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

/// All entries of a value of `messages`.
fn entries(id: &ConversationId, bytes: &[u8]) -> Result<Vec<MessageEntry>, Malformed> {
    MessageEntry::of_run(id, bytes, 0..Seq::MAX).collect()
}

fn id() -> ConversationId {
    ConversationId::new("alice~bob").unwrap()
}

#[test]
fn record() {
    fuzz("record", 30_000, |bytes| {
        let Ok(record) = WalRecord::decode(bytes) else {
            return false;
        };
        let written = encoded(|out| record.encode(out));
        assert_eq!(WalRecord::decode(&written).as_ref(), Ok(&record));
        let again = encoded(|out| record.clone().encode(out));
        assert_eq!(written, again, "one value has one form");
        // A record that decodes can be replayed, and the rows it gives can be stored.
        let (mut conv, mut user) = (ConversationState::new(id()), UserRow::default());
        conv.apply(&record, 1);
        user.apply(&record);
        keeps_conv(&conv);
        keeps_user(&user);
        true
    });
}

/// The first byte selects the kind of row.
#[test]
fn row() {
    fuzz("row", 30_000, |bytes| match bytes.split_first() {
        Some((b'm', rest)) => entries(&id(), rest).is_ok_and(|run| {
            let written = encoded(|out| run.iter().for_each(|entry| entry.encode(out)));
            assert_eq!(entries(&id(), &written).as_ref(), Ok(&run));
            true
        }),
        Some((b'c', rest)) => ConversationState::decode(id(), rest).is_ok_and(|conv| {
            keeps_conv(&conv);
            true
        }),
        Some((b'd', rest)) => devices::decode(DEVICE_KEY, rest).is_ok_and(|row| {
            assert_eq!(devices::decode(DEVICE_KEY, &devices::encode(&row).unwrap()), Ok(row));
            true
        }),
        Some((b'o', rest)) => PushOutboxRow::decode(rest).is_ok_and(|owed_row| {
            assert_eq!(PushOutboxRow::decode(&owed_row.encode()), Ok(owed_row));
            true
        }),
        Some((b'q', rest)) => mutes::decode(MUTE_KEY, rest).is_ok_and(|mute| {
            assert_eq!(mutes::decode(MUTE_KEY, &mutes::encode(&mute)), Ok(mute));
            true
        }),
        Some((b'n', rest)) => not_before::decode(rest).is_ok_and(|secs| {
            assert_eq!(not_before::decode(&not_before::encode(secs)), Ok(secs));
            true
        }),
        Some((b'r', rest)) => RunRow::decode(RUN_KEY, rest).is_ok_and(|row| {
            assert_eq!(RunRow::decode(RUN_KEY, &row.encode()).unwrap(), row);
            true
        }),
        Some((b'a', rest)) => attachments::decode(rest).is_ok_and(|row| {
            assert_eq!(attachments::decode(&attachments::encode(&row).unwrap()), Ok(row));
            true
        }),
        Some((b'u', rest)) => UserRow::decode(rest).is_ok_and(|user| {
            keeps_user(&user);
            true
        }),
        _ => false,
    });
}

const DEVICE_KEY: &[u8] = b"alice\0phone";
const MUTE_KEY: &[u8] = b"alice\0alice~bob";
const RUN_KEY: &[u8] = b"alice~bob\0\0\0\0\0\0\0\x01\x2c";

fn keeps_conv(conv: &ConversationState) {
    let written = encoded(|out| conv.encode(out));
    assert_eq!(ConversationState::decode(id(), &written).as_ref(), Ok(conv));
    for side in Side::BOTH {
        // What an inbox reads from it.
        conv.unread(side);
        conv.lists(side);
        conv.row(side, Some(Profile::default()));
    }
}

fn keeps_user(user: &UserRow) {
    let written = encoded(|out| user.encode(out));
    assert_eq!(UserRow::decode(&written).as_ref(), Ok(user));
}

fn entry() -> MessageEntry {
    let message = Message {
        conversation_id: id(),
        seq: 300,
        message_id: MessageId(u64::MAX >> 1),
        client_msg_id: ClientMsgId::new("m-1").unwrap(),
        from: Side::High,
        body: "hé \u{1f600}\0".into(),
        ts: 1_700_000_000_000,
        attachment: Some(Json::from_text(r#"{"s3_ref":"k"}"#).unwrap()),
        meta: Some(Json::from_text(r#"{ "k": [1, "\ud83d\ude00"] }"#).unwrap()),
        withheld: false,
        void: false,
    };
    MessageEntry { message: Arc::new(message), counted: [7, 1 << 40] }
}

fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

fn device() -> DeviceRow {
    let keys = PushKeys { p256dh: "p".into(), auth: "a".into() };
    let subscription = PushSubscription { endpoint: "https://push.example/\"é\"".into(), keys };
    DeviceRow {
        user_id: user("alice"),
        device: DeviceId::new("phone").unwrap(),
        registration: PushRegistration {
            target: PushTarget::Webpush { subscription },
            content: PushContent::None,
        },
        registered_at: 1_700_000_000_000,
    }
}

fn owed_row() -> PushOutboxRow {
    let devices = ["phone", "tablet"].map(|name| DeviceId::new(name).unwrap());
    PushOutboxRow { seq: 300, due_at: 1_700_000_000_000, attempts: 2, clear: true, devices: devices.into() }
}

fn mute(until: Option<u64>) -> Mute {
    Mute { conversation_id: id(), until }
}

fn run() -> RunRow {
    let run = ColdRun {
        conversation_id: id(),
        first_seq: 3,
        last_seq: 300,
        object: "cold/00ab/x".into(),
        bytes: 1 << 33,
        index_bytes: 200,
        first_ts: 1_700_000_000_000,
        last_ts: 1_700_000_000_001,
        least_id: MessageId(7),
        greatest_id: MessageId(u64::MAX >> 1),
    };
    RunRow { run, counted: [1, 297] }
}

fn attachment(upload_id: Option<&str>, state: UploadState) -> AttachmentRow {
    AttachmentRow {
        s3_ref: S3Ref::mint(1_700_000_000_000, [9; 10]),
        owner: user("alice"),
        name: "größe.pdf".into(),
        mime: "application/pdf".into(),
        bytes: 1 << 40,
        sha256: "ab".repeat(32),
        upload_id: upload_id.map(Into::into),
        state,
        claimed: upload_id.is_none(),
    }
}

/// A row of the kind that came with revocation.
fn not_before_row() -> RowChange {
    let value = Some(not_before::encode(1_700_000_000).into());
    RowChange { space: RowSpace::NotBefore, key: b"alice\0"[..].into(), value }
}

/// Rows of the kinds that came with the cold tier and attachments.
fn newer_rows() -> Vec<RowChange> {
    let row = |space, key: &[u8], value: Option<Vec<u8>>| RowChange {
        space,
        key: key.into(),
        value: value.map(Into::into),
    };
    let attachment = attachment(Some("u-1"), UploadState::Expected);
    let s3_ref = attachment.s3_ref.as_str().as_bytes();
    vec![
        row(RowSpace::ColdRuns, RUN_KEY, Some(run().encode())),
        row(RowSpace::Attachments, s3_ref, Some(attachments::encode(&attachment).unwrap())),
        row(RowSpace::AttachmentClaims, &[s3_ref, b"\0alice~bob"].concat(), Some(vec![FORMAT])),
        row(RowSpace::UnclaimedAttachments, s3_ref, None),
        row(RowSpace::OwnedAttachments, &[b"alice\0", s3_ref].concat(), Some(vec![FORMAT])),
    ]
}

fn rows() -> Vec<RowChange> {
    let row = |space, key: &[u8], value: Option<Vec<u8>>| RowChange {
        space,
        key: key.into(),
        value: value.map(Into::into),
    };
    vec![
        row(RowSpace::Devices, DEVICE_KEY, Some(devices::encode(&device()).unwrap())),
        row(RowSpace::PushTokens, &[7; 16], None),
        row(RowSpace::PushOutbox, b"bob\0alice~bob", Some(owed_row().encode())),
        row(RowSpace::Mutes, MUTE_KEY, Some(Vec::new())),
    ]
}

#[test]
fn a_conversation_of_format_1_was_notified_of_nothing() {
    let first = |kept: &[u8]| ConversationState::decode(id(), &kept[1..]).unwrap();
    let old = first(include_bytes!("../../../../../fuzz/corpus/row/ok-conversation"));
    let new = first(include_bytes!("../../../../../fuzz/corpus/row/ok-conversation-2"));
    assert_eq!(new.member(Side::Low).notified, 298);
    let mut unnotified = new;
    unnotified.members[0].notified = 0;
    assert_eq!(old, unnotified);
}

/// What is on disk stays readable: these bytes were written once, and must be read as long as the
/// format has its number.
#[test]
fn every_kind_is_written_as_it_always_was() {
    let (low, high) = (Side::Low, Side::High);
    let boundary = |seq, counted| Boundary { seq, counted };
    let plain = MessageEntry {
        message: Arc::new(Message {
            body: String::new(),
            attachment: None,
            meta: None,
            withheld: true,
            from: low,
            ..Message::clone(&entry().message)
        }),
        counted: [0, 0],
    };
    let profile = Profile { name: Some("Ann Ö".into()), avatar_url: Some(String::new()) };
    let records = [
        (
            "send",
            WalRecord::Send { entry: entry(), pending: Some(299), implied_read: Some(boundary(200, 9)) },
        ),
        ("send-plain", WalRecord::Send { entry: plain.clone(), pending: None, implied_read: None }),
        ("send-void", WalRecord::Send { entry: entry().voided(), pending: None, implied_read: None }),
        (
            "receipt",
            WalRecord::Receipt { id: id(), side: high, delivered: boundary(128, 127), read: boundary(1, 0) },
        ),
        ("pending", WalRecord::Pending { id: id(), side: low, row: Some(u64::MAX) }),
        ("pending-gone", WalRecord::Pending { id: id(), side: high, row: None }),
        ("erase", WalRecord::Erase { id: id(), side: low, up_to: 16_384 }),
        ("profile", WalRecord::Profile { user: user("alice"), profile: profile.clone() }),
        ("profile-empty", WalRecord::Profile { user: user("alice"), profile: Profile::default() }),
        ("block", WalRecord::Block { user: user("alice"), other: user(&"b".repeat(64)), blocked: true }),
        ("unblock", WalRecord::Block { user: user("alice"), other: user("bob"), blocked: false }),
        ("erase-user", WalRecord::EraseUser { user: user("a.b_c-d@e") }),
        ("notified", WalRecord::Notified { id: id(), side: high, seq: 300 }),
        ("rows", WalRecord::Rows(rows())),
        ("rows-newer", WalRecord::Rows(newer_rows())),
        ("rows-none", WalRecord::Rows(Vec::new())),
        ("rows-not-before", WalRecord::Rows(vec![not_before_row()])),
    ];
    for (name, record) in records {
        golden("record", &format!("ok-{name}"), &encoded(|out| record.encode(out)));
    }

    let row = |kind: u8, encode: &dyn Fn(&mut Vec<u8>)| {
        encoded(|out| {
            out.push(kind);
            encode(out);
        })
    };
    golden("row", "ok-message", &row(b'm', &|out| entry().encode(out)));
    golden("row", "ok-message-plain", &row(b'm', &|out| plain.encode(out)));
    let last =
        LastMessage { seq: 300, ts: 5, message_id: MessageId(9), from: high, preview: "hé…".into() };
    let member = Member {
        last: Some(last),
        delivered: boundary(299, 8),
        read: boundary(200, 7),
        pending: Some(300),
        erased: 3,
        erased_counted: 2,
        written: 150,
        peer_written_before: 1,
        notified: 298,
    };
    let conv =
        ConversationState { lsn: 1 << 50, last_seq: 300, counted: [8, 9], ..ConversationState::new(id()) };
    let both = ConversationState { members: [member, Member::default()], ..conv.clone() };
    // `ok-conversation` and `ok-conversation-new` are of format 1.
    golden("row", "ok-conversation-2", &row(b'c', &|out| both.encode(out)));
    golden("row", "ok-conversation-new-2", &row(b'c', &|out| conv.encode(out)));
    golden("row", "ok-device", &row(b'd', &|out| out.extend(devices::encode(&device()).unwrap())));
    golden("row", "ok-owed", &row(b'o', &|out| out.extend(owed_row().encode())));
    golden("row", "ok-mute", &row(b'q', &|out| out.extend(mutes::encode(&mute(Some(9))))));
    golden("row", "ok-mute-for-ever", &row(b'q', &|out| out.extend(mutes::encode(&mute(None)))));
    golden("row", "ok-not-before", &row(b'n', &|out| out.extend(not_before::encode(1_700_000_000))));
    golden("row", "ok-run", &row(b'r', &|out| out.extend(run().encode())));
    for (name, upload_id, state) in [
        ("expected", Some("u-1"), UploadState::Expected),
        ("uploaded", None, UploadState::Uploaded),
        ("collecting", Some(""), UploadState::Collecting),
    ] {
        let kept = attachments::encode(&attachment(upload_id, state)).unwrap();
        golden("row", &format!("ok-attachment-{name}"), &row(b'a', &|out| out.extend(&kept)));
    }
    let blocked = [(user("bob"), None), (user("carol@example.com"), None)].into();
    let mut full = UserRow { profile, blocked };
    golden("row", "ok-user", &row(b'u', &|out| full.encode(out)));
    full.apply(&WalRecord::Profile { user: user("alice"), profile: Profile::default() });
    full.apply(&WalRecord::Block { user: user("alice"), other: user("dave"), blocked: true });
    golden("row", "ok-user-2", &row(b'u', &|out| full.encode(out)));
    golden("row", "ok-user-empty", &row(b'u', &|out| UserRow::default().encode(out)));
}
