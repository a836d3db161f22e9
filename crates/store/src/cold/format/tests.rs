use bluetick_protocol::UserId;

use super::*;

fn message(seq: Seq, ms: u64, from: Side, name: &str, body: &str) -> Arc<Message> {
    let id = ConversationId::between(&UserId::new("alice").unwrap(), &UserId::new("bob").unwrap()).unwrap();
    Arc::new(Message {
        conversation_id: id,
        seq,
        message_id: MessageId(MessageId::at(ms).0 + seq % 7),
        client_msg_id: ClientMsgId::new(name).unwrap(),
        from,
        body: body.into(),
        ts: ms,
        attachment: None,
        meta: None,
        withheld: false,
        void: false,
    })
}

/// All kinds of messages there are.
fn some(count: u64) -> Vec<Arc<Message>> {
    (0..count)
        .map(|n| {
            let from = if n % 3 == 0 { Side::Low } else { Side::High };
            let name = match n % 4 {
                0 => format!("01890a5d-ac96-774b-bcce-b302099a{n:04x}"),
                1 => format!("01890A5D-AC96-774B-BCCE-B302099A{n:04X}"),
                2 => format!("phone-{n}"),
                _ => "~".repeat(64),
            };
            let mut m =
                Message::clone(&message(41 + n, 1_760_000_000_000 + n * 977, from, &name, &format!("é {n}")));
            if n % 5 == 1 {
                m.ts = m.ts.wrapping_add(n).wrapping_sub(3);
                m.meta = Some(Json::from_text("{\"a\":[1,2]}").unwrap());
            }
            if n % 7 == 2 {
                m.attachment = Some(Json::from_text("{\"s3_ref\":\"x\"}").unwrap());
                m.withheld = true;
            }
            if n % 11 == 3 {
                m = m.voided();
            }
            Arc::new(m)
        })
        .collect()
}

#[test]
fn what_is_packed_is_read_as_it_was() {
    for count in [1, 2, 50, 4096, 4097, 9000] {
        let messages = some(count);
        let (object, _) = pack(&messages).unwrap();
        assert_eq!(super::unpack(&object).unwrap().1, messages);
    }
}

#[test]
fn a_block_ends_where_its_text_is_long() {
    let long: Vec<_> =
        (0..8).map(|n| message(1 + n, 1_760_000_000_000, Side::Low, "x", &"long ".repeat(20_000))).collect();
    let (object, index_bytes) = pack(&long).unwrap();
    let index = read_index(&object[object.len() - index_bytes as usize..], object.len() as u64).unwrap();
    assert!(index.blocks.len() > 1);
    assert_eq!(super::unpack(&object).unwrap().1, long);
}

#[test]
fn every_damaged_byte_is_noticed() {
    let messages = some(40);
    let (object, index_bytes) = pack(&messages).unwrap();
    for at in 0..object.len() {
        let mut damaged = object.clone();
        damaged[at] ^= 0x10;
        match super::unpack(&damaged).map(|(_, messages)| messages) {
            // Nothing reads the first bytes: they are for whoever meets the file.
            Ok(read) => assert!(at < HEADER && read == messages, "a change of byte {at} went unnoticed"),
            Err(Damage(why)) => assert!(!why.is_empty()),
        }
    }
    for length in 0..object.len() {
        let end = length.saturating_sub(index_bytes as usize);
        assert!(read_index(&object[end..length], length as u64).is_err());
    }
}

#[test]
fn another_version_says_so() {
    let (mut object, _) = pack(&some(3)).unwrap();
    let at = object.len() - MAGIC.len() - 1;
    object[at] = 9;
    let Err(Damage(why)) = super::unpack(&object) else { panic!("format 9 was read") };
    assert!(why.contains("format 9"), "{why}");
}
