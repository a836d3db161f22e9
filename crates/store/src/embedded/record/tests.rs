//! Round trips: every record and row decodes to what was encoded, and no prefix of one decodes.

use std::sync::Arc;

use bluetick_fuzz::{for_every_variant, strategies_of};
use bluetick_protocol::{ClientMsgId, Json, MessageId};
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    sample::select,
};

use super::*;
use crate::{
    Message,
    embedded::{
        conversation::{ConversationState, LastMessage, Member},
        rows::RowSpace,
        user_row::UserRow,
    },
};

fn user() -> impl Strategy<Value = UserId> {
    "[A-Za-z0-9._@+|:=-]{1,128}".prop_map(|text| UserId::new(&text).unwrap())
}

fn conversation() -> impl Strategy<Value = ConversationId> {
    (user(), user()).prop_filter_map("one user", |(a, b)| ConversationId::between(&a, &b))
}

fn sides() -> impl Strategy<Value = Side> {
    select(&Side::BOTH[..])
}

fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(any::<char>(), 0..60).prop_map(String::from_iter)
}

fn json() -> impl Strategy<Value = Json> {
    (text(), any::<i64>()).prop_map(|(text, n)| {
        let text = serde_json::to_string(&text).unwrap();
        Json::from_text(&format!("{{\"n\": {n}, {text}:[{text}]}}")).unwrap()
    })
}

prop_compose! {
    fn entries()(
        conversation_id in conversation(), seq in any::<u64>(), id in any::<u64>(), ts in any::<u64>(),
        counted in any::<[u64; 2]>(), from in sides(), withheld in any::<bool>(), void in any::<bool>(),
        cmid in "[!-~]{1,64}", body in text(),
        (attachment, meta) in (option::of(json()), option::of(json())),
    ) -> MessageEntry {
        let message = Message {
            conversation_id, seq, message_id: MessageId(id), ts, withheld, void, body, from, attachment, meta,
            client_msg_id: ClientMsgId::new(&cmid).unwrap(),
        };
        MessageEntry { message: Arc::new(message), counted }
    }
}

fn boundaries() -> impl Strategy<Value = Boundary> {
    any::<(u64, u64)>().prop_map(|(seq, counted)| Boundary { seq, counted })
}

/// A boundary with a seq above 0, which encodes "none".
fn some_boundary() -> impl Strategy<Value = Option<Boundary>> {
    option::of((1u64.., any::<u64>()).prop_map(|(seq, counted)| Boundary { seq, counted }))
}

fn some_seq() -> impl Strategy<Value = Option<Seq>> {
    option::of(1u64..)
}

fn profiles() -> impl Strategy<Value = Profile> {
    (option::of(text()), option::of(text())).prop_map(|(name, avatar_url)| Profile { name, avatar_url })
}

fn row_changes() -> impl Strategy<Value = RowChange> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    (select(&RowSpace::ALL[..]), bytes(), option::of(bytes())).prop_map(|(space, key, value)| RowChange {
        space,
        key: key.into(),
        value: value.map(Into::into),
    })
}

fn records() -> Vec<BoxedStrategy<WalRecord>> {
    strategies_of!(WalRecord {
        Send => (entries(), some_seq(), some_boundary())
            .prop_map(|(entry, pending, implied_read)| WalRecord::Send { entry, pending, implied_read }),
        Receipt => (conversation(), sides(), boundaries(), boundaries())
            .prop_map(|(id, side, delivered, read)| WalRecord::Receipt { id, side, delivered, read }),
        Pending => (conversation(), sides(), some_seq())
            .prop_map(|(id, side, row)| WalRecord::Pending { id, side, row }),
        Erase => (conversation(), sides(), any::<u64>())
            .prop_map(|(id, side, up_to)| WalRecord::Erase { id, side, up_to }),
        Profile => (user(), profiles()).prop_map(|(user, profile)| WalRecord::Profile { user, profile }),
        Block => (user(), user(), any::<bool>())
            .prop_map(|(user, other, blocked)| WalRecord::Block { user, other, blocked }),
        EraseUser => user().prop_map(|user| WalRecord::EraseUser { user }),
        Notified => (conversation(), sides(), any::<u64>())
            .prop_map(|(id, side, seq)| WalRecord::Notified { id, side, seq }),
        Rows => proptest::collection::vec(row_changes(), 0..5).prop_map(WalRecord::Rows),
    })
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

#[test]
fn every_record_survives_the_way_to_bytes_and_back() {
    for_every_variant(records(), |record| {
        let mut bytes = encoded(|out| record.encode(out));
        assert_eq!(WalRecord::decode(&bytes).as_ref(), Ok(&record));
        for cut in 0..bytes.len() {
            assert!(WalRecord::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        bytes.push(0);
        assert!(WalRecord::decode(&bytes).is_err(), "a byte too many");
    });
}

fn members() -> impl Strategy<Value = Member> {
    let last = (any::<u64>(), any::<u64>(), any::<u64>(), sides(), text()).prop_map(
        |(seq, ts, message_id, from, preview)| LastMessage {
            seq,
            ts,
            message_id: MessageId(message_id),
            from,
            preview: preview.as_str().into(),
        },
    );
    let counts = any::<(u64, u64, u64, u64, u64)>();
    (option::of(last), boundaries(), boundaries(), some_seq(), counts).prop_map(
        |(
            last,
            delivered,
            read,
            pending,
            (erased, erased_counted, written, peer_written_before, notified),
        )| Member {
            last,
            delivered,
            read,
            pending,
            erased,
            erased_counted,
            written,
            peer_written_before,
            notified,
        },
    )
}

proptest! {
    #[test]
    fn conversations_survive_the_way_to_bytes_and_back(
        id in conversation(), lsn in any::<u64>(), last_seq in any::<u64>(), counted in any::<[u64; 2]>(),
        low in members(), high in members(),
    ) {
        let conv = ConversationState { id, lsn, last_seq, counted, members: [low, high] };
        let mut bytes = encoded(|out| conv.encode(out));
        assert_eq!(ConversationState::decode(conv.id.clone(), &bytes).as_ref(), Ok(&conv));
        for cut in 0..bytes.len() {
            assert!(ConversationState::decode(conv.id.clone(), &bytes[..cut]).is_err(), "cut at {cut}");
        }
        bytes.push(0);
        assert!(ConversationState::decode(conv.id.clone(), &bytes).is_err(), "a byte too many");
    }

    #[test]
    fn messages_survive_the_way_to_bytes_and_back(entry in entries()) {
        let id = &entry.message.conversation_id;
        let run = |bytes: &[u8]| MessageEntry::of_run(id, bytes, 0..Seq::MAX).collect::<Result<Vec<_>, _>>();
        let mut bytes = encoded(|out| entry.encode(out));
        assert_eq!(run(&bytes), Ok(vec![entry.clone()]));
        let others = 0..entry.message.seq;
        assert_eq!(MessageEntry::of_run(id, &bytes, others).next(), None);
        for cut in 1..bytes.len() {
            assert!(run(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        bytes.push(0);
        assert!(run(&bytes).is_err(), "a byte too many");
    }

    #[test]
    fn users_survive_the_way_to_bytes_and_back(
        profile in profiles(),
        frozen in vec(profiles(), 1..3),
        blocked in btree_map(user(), option::of(0..3_usize), 0..6),
    ) {
        let frozen: Vec<_> = frozen.into_iter().map(std::sync::Arc::new).collect();
        let copy = |place: usize| frozen[place % frozen.len()].clone();
        let blocked = blocked.into_iter().map(|(user, place)| (user, place.map(copy))).collect();
        let row = UserRow { profile, blocked };
        let mut bytes = encoded(|out| row.encode(out));
        assert_eq!(UserRow::decode(&bytes).as_ref(), Ok(&row));
        for cut in 0..bytes.len() {
            assert!(UserRow::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        bytes.push(0);
        assert!(UserRow::decode(&bytes).is_err(), "a byte too many");
    }
}
